"""`pack`: from a source to a packed dataset."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastload._version import __version__
from fastload.errors import FastloadError, OptionError
from fastload.images.encodings import Encoding, encoding_named
from fastload.images.jpegtran import find_jpegtran, require_jpegtran
from fastload.images.opencv import cv2, require_opencv
from fastload.packing.assemble import Assembler, FinishedShard
from fastload.packing.choose import Choice, choose_encoding, combine, look_at
from fastload.packing.flow import Flow
from fastload.packing.journal import Journal
from fastload.packing.options import (
    DEFAULT_SHARD_BYTES,
    OnError,
    PackOptions,
    check_fields,
    limit_of,
    parse_size,
)
from fastload.packing.payload import Stretch
from fastload.packing.piece import Failure, Piece, Recipe
from fastload.packing.result import PackedSplit, PackProgress, PackResult, require_records
from fastload.packing.staging import Staging, check_apart
from fastload.packing.stopping import explained
from fastload.packing.workers import WorkerPool
from fastload.shards.manifest import MANIFEST_NAME, Manifest, Skipped
from fastload.shards.schema import Field
from fastload.shards.shard import writer_for
from fastload.sources import ColumnKind, Source, open_source
from fastload.system import signals
from fastload.system.cpus import usable_cpus


def pack(
    source: Any,
    dest: str | os.PathLike[str],
    *,
    format: str = "hdf5",
    encode: str = "auto",
    quality: int = 90,
    workers: int | None = None,
    shard_size: int | str = DEFAULT_SHARD_BYTES,
    on_error: OnError = "fail",
    overwrite: bool = False,
    max_side: int | None = None,
    shorter_side: int | None = None,
    size: tuple[int, int] | int | None = None,
    space: int | str | None = None,
    fields: Sequence[Field] | None = None,
    columns: Mapping[str, ColumnKind] | None = None,
    progress: Callable[[PackProgress], None] | None = None,
) -> PackResult:
    """Packs a folder of images, a table or a dataset into shards.

    Nothing appears at `dest` before everything is written. A packing that was interrupted, even
    killed, is resumed by the same call, which packs again only what was in flight: two runs of records
    a worker, each of some 8 MB or a quarter of a second. The bytes written do not depend on the number
    of workers.

    Args:
        source: A folder of class folders, of train/val/test, or of images; a CSV or TSV file; or a
            map-style dataset whose samples are (image, target) or dicts with an "image".
        dest: The packed dataset to make, by custom `NAME.fl`. For several splits, a folder with one
            packed dataset for each.
        format: The container, `hdf5` or `lmdb`.
        encode: How images are stored: `keep` (the source's bytes), `tiled` (lossless, crops decode
            faster), `jpeg`, `yuv420`, `raw`, or `auto`.
        quality: Of `jpeg`, 1 to 100.
        workers: The number of processes; None for one a usable CPU.
        shard_size: The size at which a new shard begins, in bytes or as `256MB`.
        on_error: What becomes of a file that is no readable image: `fail`, `skip` or `keep`.
        overwrite: Whether to replace a packed dataset at `dest`, in one step at the end.
        max_side: Shrinks images whose longer side is larger, to this many pixels.
        shorter_side: Shrinks images whose shorter side is larger, to this many pixels.
        size: Resizes every image to exactly (height, width), or to a square.
        space: What `auto` may fill, in bytes or as `20GB`; None for its own choice.
        fields: The fields beside the image, where they cannot be told from a dataset's first sample.
        columns: What columns of a table are, by their headers: `text`, `int`, `float`, or `path` for further
            images; where they are not what their cells tell.
        progress: Called in this process after every run of records.

    Returns:
        What was made.

    Raises:
        OptionError: An option cannot be obeyed.
        SourceError: The source cannot be read, or with `on_error="fail"` one of its records cannot.
        DestinationError: `dest` exists, or another process is packing to it.
        PackError: The disk is full, or a process died.
        ToolMissingError: `tiled` was asked for and jpegtran is not installed.
        LibraryMissingError: OpenCV cannot be imported.
    """
    require_opencv()
    options = PackOptions(
        format=format,
        encode=encode,
        quality=quality,
        shard_bytes=parse_size(shard_size),
        on_error=on_error,
        limit=limit_of(max_side, shorter_side, size),
        space_bytes=None if space is None else parse_size(space),
    )
    if workers is not None and not (isinstance(workers, int) and workers >= 1):
        raise OptionError(f"workers must be a whole number, at least 1, got {workers!r}")
    check_fields(fields or ())
    destination = Path(os.path.abspath(os.path.expanduser(dest)))
    check_apart(source, destination)
    with signals.unwinding(), Staging(destination, overwrite) as staging:
        try:
            return _Job(source, options, fields, columns, workers or usable_cpus(), staging, progress).run()
        except (FastloadError, BrokenPipeError):  # the latter: whoever watches the progress has gone
            raise
        except OSError as error:
            raise explained(error, destination) from error


class _Job:
    """One packing, from listing the source to the final rename."""

    def __init__(
        self,
        source: Any,
        options: PackOptions,
        fields: Sequence[Field] | None,
        columns: Mapping[str, ColumnKind] | None,
        workers: int,
        staging: Staging,
        progress: Callable[[PackProgress], None] | None,
    ) -> None:
        self._began = time.perf_counter()
        self._sources = open_source(source, fields, columns, skips_unlistable=options.on_error != "fail")
        for each in self._sources.values():
            require_records(each, len(each))
        self._options = options
        self._workers = workers
        self._staging = staging
        self._progress = progress
        self._token = secrets.token_hex(4)
        self._total = sum(len(each) for each in self._sources.values())
        self._done = self._resumed = self._read_bytes = self._written_bytes = 0

    def run(self) -> PackResult:
        """Packs every split and publishes them together."""
        choice = self._choose()
        encoding = self._encoding(choice.encode)
        self._staging.begin(self._identity(encoding))
        manifests = {
            split: self._pack_split(split, source, encoding) for split, source in self._sources.items()
        }
        self._staging.publish()
        return self._result(manifests, choice)

    def _choose(self) -> Choice:
        options = self._options
        if options.encode == "tiled":
            require_jpegtran()
        if options.encode != "auto":
            return Choice(options.encode, "")
        return choose_encoding(
            combine([look_at(source, options.limit) for source in self._sources.values()]),
            is_resized=options.limit is not None,
            has_jpegtran=find_jpegtran() is not None,
            space_bytes=options.space_bytes,
        )

    def _encoding(self, name: str) -> Encoding:
        if name == "jpeg":
            return encoding_named(name, quality=self._options.quality)
        return encoding_named(name)

    def _identity(self, encoding: Encoding) -> dict[str, Any]:
        """Everything that decides the output's bytes: an unfinished packing of just this is resumed."""
        return {
            "sources": {split: source.fingerprint() for split, source in self._sources.items()},
            "options": asdict(self._options),
            "made": {split: self._made(source, encoding) for split, source in self._sources.items()},
        }

    def _made(self, source: Source, encoding: Encoding) -> dict[str, Any]:
        """How a split is made, as its manifest tells."""
        limit = self._options.limit
        columns = {"columns": dict(source.columns)} if source.columns else {}
        return {
            "fastload": __version__,
            "opencv": cv2.__version__,
            "source": source.name,
            "source_kind": source.kind,
            "encoding": {"name": encoding.name, **encoding.parameters()},
            "limit": None if limit is None else asdict(limit),
            "on_error": self._options.on_error,
            "shard_bytes": self._options.shard_bytes,
            **columns,
        }

    def _meaning(self, split: str, source: Source, fields: Sequence[Field]) -> bytes:
        """What the bytes of a split's shards mean.

        Not when and where they were packed: the same source gives the same bytes.
        """
        kinds = [field.to_json() for field in fields]
        return json.dumps([split, kinds, list(source.classes)]).encode()

    def _folder(self, split: str) -> Path:
        return self._staging.dataset / f"{split}.fl" if split else self._staging.dataset

    def _pack_split(self, split: str, source: Source, encoding: Encoding) -> Manifest:
        folder = self._folder(split)
        folder.mkdir(exist_ok=True)
        finished = self._staging.finished(split, folder)
        begin = finished[-1].next_index if finished else 0
        fields = (Field("image", "image", encoding=encoding.name), *source.fields)
        assembler = Assembler(
            folder,
            self._staging.drafts,
            fields,
            writer_for(self._options.format),
            self._options.shard_bytes,
            len(finished),
            self._meaning(split, source, fields),
            self._token,
        )
        journal = Journal(self._staging.drafts, split, folder)

        def on_finished(shard: FinishedShard) -> None:
            self._staging.note_finished(split, len(finished), shard)
            finished.append(shard)
            journal.forget(shard)

        for piece, shards in journal.resume(assembler, begin):
            begin = piece.stop
            for shard in shards:
                on_finished(shard)
        journal.clear(self._token)
        self._staging.clear(folder, finished)
        self._done += begin
        self._resumed += begin
        recipe = Recipe(source, fields, encoding, self._options.limit, self._options.on_error)
        self._fill(split, recipe, assembler, begin, journal, on_finished)
        failures = [failure for shard in finished for failure in shard.failures]
        failures += assembler.take_failures(len(source))
        require_records(source, len(source) - sum(not failure.is_kept for failure in failures), failures)
        manifest = self._manifest(source, encoding, fields, finished, failures)
        (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
        return manifest

    def _fill(
        self,
        split: str,
        recipe: Recipe,
        assembler: Assembler,
        begin: int,
        journal: Journal,
        on_finished: Callable[[FinishedShard], None],
    ) -> None:
        """Encodes and places all records from `begin` on."""

        def on_written(piece: Piece, stretches: Sequence[Stretch], crcs: Sequence[int]) -> None:
            journal.note(piece, stretches, crcs)
            self._advance(split, piece)

        end = len(recipe.source)
        pool = WorkerPool(recipe, min(self._workers, end - begin), self._staging.drafts)
        try:
            Flow(pool, assembler, begin, end, on_written, on_finished).run()
        finally:
            pool.close()

    def _advance(self, split: str, piece: Piece) -> None:
        """Takes note of a piece that is written, and tells whoever watches."""
        self._done += piece.stop - piece.start
        self._read_bytes += piece.read_bytes
        self._written_bytes += int(piece.sizes.sum())
        if self._progress is not None:
            self._progress(
                PackProgress(
                    split,
                    self._done,
                    self._total,
                    self._resumed,
                    self._read_bytes,
                    self._written_bytes,
                    time.perf_counter() - self._began,
                )
            )

    def _manifest(
        self,
        source: Source,
        encoding: Encoding,
        fields: tuple[Field, ...],
        finished: Sequence[FinishedShard],
        failures: Sequence[Failure],
    ) -> Manifest:
        shapes = {shard.image_shape for shard in finished}
        return Manifest(
            container=self._options.format,
            fields=fields,
            classes=source.classes,
            shards=tuple(shard.entry for shard in finished),
            made=self._made(source, encoding),
            image_shape=shapes.pop() if len(shapes) == 1 else None,
            skipped=(*source.unlisted, *(Skipped(f.key, f.reason) for f in failures if not f.is_kept)),
            kept=tuple(Skipped(f.key, f.reason) for f in failures if f.is_kept),
            left_out=source.left_out,
        )

    def _result(self, manifests: Mapping[str, Manifest], choice: Choice) -> PackResult:
        destination = self._staging.destination
        splits = tuple(
            PackedSplit(
                destination / f"{split}.fl" if split else destination,
                manifest.records,
                manifest.size_bytes,
                manifest.skipped,
                manifest.kept,
                manifest.image_shape,
                manifest.left_out,
            )
            for split, manifest in manifests.items()
        )
        return PackResult(
            splits=splits,
            encoding=choice.encode,
            reason=choice.reason,
            classes=next(iter(manifests.values())).classes,
            read_bytes=self._read_bytes,
            resumed=self._resumed,
            seconds=time.perf_counter() - self._began,
            warnings=tuple(w for source in self._sources.values() for w in source.warnings),
            columns={
                name: what for source in self._sources.values() for name, what in source.columns.items()
            },
        )
