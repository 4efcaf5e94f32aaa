"""Packing of a source into packed datasets: options, encoding, splits, result."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload._version import __version__
from fastload.errors import FastloadError, OptionError
from fastload.images.encodings import Encoding, encoding_named
from fastload.images.jpegtran import find_jpegtran, require_jpegtran
from fastload.images.opencv import cv2, require_opencv
from fastload.packing._chunk import Chunk, Recipe
from fastload.packing._options import DEFAULT_SHARD_BYTES, OnError, PackOptions, check_fields, limit_of
from fastload.packing._split import pack_split, require_records
from fastload.packing._staging import Staging, check_apart
from fastload.packing._workers import describe_failure
from fastload.packing.choose import EncodingChoice, choose_encoding, combine, estimate_stats
from fastload.packing.result import PackedSplit, PackProgress, PackResult
from fastload.shards.manifest import MANIFEST_NAME, Manifest, Skipped
from fastload.shards.schema import Field
from fastload.sources import ColumnKind, Source, open_source
from fastload.system import signals
from fastload.system.cpus import usable_cpus
from fastload.system.units import parse_size


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
    """Pack a folder of images, a table or a dataset into shards.

    Nothing appears at `dest` until everything is written. If packing was interrupted, or even killed, the
    same call resumes it: it keeps all finished shards and repeats the rest. With a dataset as the source, it
    starts over. The bytes written do not depend on the number of workers.

    Args:
        source: A folder of class folders, of train/val/test, or of images; a CSV or TSV file; a dataset of
            YOLO, COCO or Pascal VOC, or of images with masks; files of WebDataset, Hugging Face, LMDB or HDF5
            (see docs/packing.md); or a map-style dataset whose samples are (image, target) or dicts with an
            "image".
        dest: The packed dataset to make, by convention `NAME.fl`. For several splits, a folder with one
            packed dataset for each.
        format: The container, `hdf5` or `lmdb`.
        encode: The way images are stored: `keep` (the source's bytes), `tiled` (lossless, crops decode
            faster), `jpeg`, `yuv420`, `raw`, or `auto`.
        quality: The quality of `jpeg`, 1 to 100.
        workers: The number of processes; None for one per usable CPU.
        shard_size: The size at which a new shard begins, in bytes or as `256MB`.
        on_error: What to do with a file that is not a readable image: `fail`, `skip` or `keep`.
        overwrite: Replace a packed dataset at `dest`, in one step at the end.
        max_side: Shrink images whose longer side is larger, to this many pixels.
        shorter_side: Shrink images whose shorter side is larger, to this many pixels.
        size: Resize every image to exactly (height, width), or to a square.
        space: The space that `auto` may fill, in bytes or as `20GB`; None for 4 times the source's size.
        fields: The fields other than the image, if a dataset's first sample does not show them.
        columns: The kinds of a table's columns, by their headers, where the cells do not show them: `text`,
            `int`, `float`, or `path` for further images.
        progress: Called in this process after every chunk.

    Returns:
        The packed datasets, and decisions about the source.

    Raises:
        OptionError: An option is invalid.
        SourceError: The source cannot be read, or with `on_error="fail"` one of its records cannot.
        DestinationError: `dest` exists, or another process is packing to it.
        PackError: The disk is full, or a process died.
        ToolMissingError: `tiled` was requested and jpegtran is not installed.
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
    began = time.perf_counter()
    with signals.unwinding(), Staging(destination, overwrite) as staging:
        try:
            sources = open_source(source, fields, columns)
            return _PackJob(sources, options, workers or usable_cpus(), staging, progress, began).run()
        except (FastloadError, BrokenPipeError):  # BrokenPipeError: the reader of the progress is gone
            raise
        except OSError as error:
            raise describe_failure(error, destination) from error


@dataclass
class _PackJob:
    """The packing of all splits of a source into a staging folder."""

    sources: Mapping[str, Source]
    options: PackOptions
    workers: int
    staging: Staging
    progress: Callable[[PackProgress], None] | None
    began: float
    state: PackProgress = field(init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.state = PackProgress("", 0, sum(map(len, self.sources.values())), 0, 0, 0, 0.0)

    def run(self) -> PackResult:
        """Pack every split and publish them together."""
        for source in self.sources.values():
            require_records(source, len(source))
        choice = self._choose_encoding()
        encoding = encoding_named(choice.encode, self.options.quality)
        fingerprints = {split: source.fingerprint() for split, source in self.sources.items()}
        # Everything that determines the output's bytes: packing is resumed only if all of it is the same.
        job = {
            "sources": fingerprints,
            "options": asdict(self.options),
            "made": {split: self._provenance(source, encoding) for split, source in self.sources.items()},
        }
        self.staging.begin(None if None in fingerprints.values() else json.dumps(job, sort_keys=True))
        manifests = {
            split: self._pack_split(split, source, encoding) for split, source in self.sources.items()
        }
        self.staging.publish()
        return self._result(manifests, choice)

    def _choose_encoding(self) -> EncodingChoice:
        options = self.options
        if options.encode == "tiled":
            require_jpegtran()
        if options.encode != "auto":
            return EncodingChoice(options.encode, "")
        return choose_encoding(
            combine([estimate_stats(source, options.limit) for source in self.sources.values()]),
            is_resized=options.limit is not None,
            has_jpegtran=find_jpegtran() is not None,
            space_bytes=options.space_bytes,
        )

    def _provenance(self, source: Source, encoding: Encoding) -> dict[str, Any]:
        """Return the manifest's description of how a split is made."""
        limit = self.options.limit
        further: dict[str, Any] = {"columns": dict(source.columns)} if source.columns else {}
        if source.details or source.is_upright:
            further["details"] = dict(source.details) | ({"is_upright": True} if source.is_upright else {})
        return {
            "fastload": __version__,
            "opencv": cv2.__version__,
            "source": source.name,
            "source_kind": source.kind,
            "encoding": {"name": encoding.name, **encoding.parameters()},
            "limit": None if limit is None else asdict(limit),
            "on_error": self.options.on_error,
            "shard_bytes": self.options.shard_bytes,
            **further,
        }

    def _pack_split(self, split: str, source: Source, encoding: Encoding) -> Manifest:
        options = self.options
        fields = (Field("image", "image", encoding=encoding.name), *source.fields)
        recipe = Recipe(source, fields, encoding, options.limit, options.on_error)
        finished = self.staging.resume(split)
        resumed = finished[-1].next_index if finished else 0
        records = self.state.records + resumed
        self.state = replace(self.state, split=split, records=records, resumed=self.state.resumed + resumed)
        failures = pack_split(split, recipe, finished, options, self.staging, self.workers, self._report)
        shapes = {shard.image_shape for shard in finished}
        manifest = Manifest(
            container=options.format,
            fields=fields,
            classes=source.classes,
            shards=tuple(shard.entry for shard in finished),
            made=self._provenance(source, encoding),
            image_shape=shapes.pop() if len(shapes) == 1 else None,
            skipped=tuple(Skipped(each.key, each.reason) for each in failures if not each.is_kept),
            kept=tuple(Skipped(each.key, each.reason) for each in failures if each.is_kept),
            left_out=source.left_out,
        )
        (self.staging.folder(split) / MANIFEST_NAME).write_bytes(manifest.to_bytes())
        return manifest

    def _report(self, chunk: Chunk) -> None:
        """Count a chunk that is written, and report the progress."""
        self.notes += chunk.notes
        self.state = replace(
            self.state,
            records=self.state.records + chunk.stop - chunk.start,
            read_bytes=self.state.read_bytes + chunk.read_bytes,
            written_bytes=self.state.written_bytes + int(chunk.sizes.sum()),
            seconds=time.perf_counter() - self.began,
        )
        if self.progress is not None:
            self.progress(self.state)

    def _result(self, manifests: Mapping[str, Manifest], choice: EncodingChoice) -> PackResult:
        destination = self.staging.destination
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
        sources = self.sources.values()
        return PackResult(
            splits=splits,
            encoding=choice.encode,
            reason=choice.reason,
            classes=next(iter(manifests.values())).classes,
            read_bytes=self.state.read_bytes,
            resumed=self.state.resumed,
            seconds=time.perf_counter() - self.began,
            warnings=(*(warning for source in sources for warning in source.warnings), *sorted(self.notes)),
            columns={name: meaning for source in sources for name, meaning in source.columns.items()},
        )
