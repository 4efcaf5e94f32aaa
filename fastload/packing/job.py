"""Packing of a source into packed datasets: options, encoding, partition, shards, result."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from fastload._version import __version__
from fastload.errors import DestinationError, FastloadError, OptionError, PackError, SourceError
from fastload.images.blosc import find_blosc
from fastload.images.encodings import Encoding, encoding_named
from fastload.images.jpegtran import find_jpegtran
from fastload.images.opencv import cv2, require_opencv
from fastload.packing.encoding.assemble import FinishedShard, Partition, ShardRange, SplitPartition
from fastload.packing.encoding.chunk import Recipe
from fastload.packing.encoding.options import (
    DEFAULT_SHARD_BYTES,
    OnError,
    PackOptions,
    check_apart,
    check_fields,
    check_part,
    choose_encoding,
    estimate_stats,
    limit_of,
)
from fastload.packing.result import PackProgress, PackResult, splits_of
from fastload.packing.running.executors import executor_for
from fastload.packing.running.local import Executor, cut
from fastload.packing.running.workers import describe_failure
from fastload.packing.staging.staging import Journal, Staging, folder_of
from fastload.shards.attachment import ATTACHMENT_NAME, Attachment, write_attachment
from fastload.shards.manifest import Manifest
from fastload.shards.schema import Field
from fastload.sources import ColumnKind, open_source
from fastload.sources.account import without_skipped
from fastload.sources.bands import joined_bands
from fastload.sources.files import digest_of, safe_key
from fastload.sources.pixel_type import first_pixel_type
from fastload.sources.protocol import Source
from fastload.system import signals
from fastload.system.cpus import usable_cpus
from fastload.system.units import format_count, parse_size


def pack(
    source: object,
    dest: str | os.PathLike[str],
    *,
    format: str = "hdf5",
    encode: str = "auto",
    quality: int | None = None,
    workers: int | None = None,
    shard_size: int | str = DEFAULT_SHARD_BYTES,
    on_error: OnError = "fail",
    overwrite: bool = False,
    max_side: int | None = None,
    shorter_side: int | None = None,
    size: tuple[int, int] | int | None = None,
    space: int | str | None = None,
    convert: str | None = None,
    bands: Sequence[str] | None = None,
    fields: Sequence[Field] | None = None,
    columns: Mapping[str, ColumnKind] | None = None,
    layout: str | None = None,
    on: str | None = None,
    part: tuple[int, int] | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: Callable[[PackProgress], None] | None = None,
) -> PackResult:
    """Pack a folder of images, a table or a dataset into shards; its records may be without images.

    Nothing appears at `dest` until everything is written. If packing was interrupted, or even killed, the
    same call resumes it: it reuses all finished shards and packs the rest. With a Python dataset as the
    source, it starts over. The bytes written do not depend on the number of workers, nor on where they run.

    Args:
        source: A folder of class folders, of train/val/test, or of images; a CSV or TSV file; a dataset in
            another layout, such as YOLO's, as a folder or a file (see the page "Packing"); or a map-style
            dataset of (image, target), dicts with an "image", or numbers, arrays and texts without one.
        dest: The packed dataset to make, by convention `NAME.fl`, or its URL, such as `s3://bucket/NAME.fl`.
            For several splits, a folder with one packed dataset for each.
        format: The container, `hdf5` or `lmdb`.
        encode: `auto`, or the encoding of the images, such as `keep` (the source's bytes), `tiled` (lossless,
            crops decode faster), `jpeg` or `raw`; see the page "The command line" of the documentation.
        quality: The quality of `jpeg`, 1 to 100; None for 90.
        workers: The number of processes; None for one per usable CPU.
        shard_size: The target size of a shard, in bytes or as `256MB`; it has at most 262,144 records.
        on_error: The treatment of a file that is not a readable image: `fail`, `skip` or `keep`.
        overwrite: Replace a packed dataset at `dest`, in one step at the end; at a URL, when packing begins.
        max_side: Shrink images whose longer side is larger, to this many pixels.
        shorter_side: Shrink images whose shorter side is larger, to this many pixels.
        size: Resize every image to exactly (height, width), or to a square.
        space: The space that `auto` may fill, in bytes or as `20GB`; None for 4 times the source's size.
        convert: The dtype to which images are converted (by `ToDtype(scale=True)`); None for the first one's.
        bands: Channels that are files of their own, as ("red", "nir"), the ends of their names, or columns.
        fields: The fields other than the image, if a dataset's first sample does not show them.
        columns: The kinds of a table's columns, by header, where the cells do not show them: `text`,
            `int`, `float`, `label` for labels, or `path` for names of images.
        layout: The layout of a source that could be read in two ways, such as `classes` for class folders.
        on: `ray` or `ray=ADDRESS` to pack on a Ray cluster, whose nodes all reach source and destination.
        part: (number, count), as in (3, 16), to pack only this part of the shards, numbered from 1; `merge`
            makes the dataset of all parts.
        storage_options: Options of fsspec's file system, if `dest` is a URL.
        progress: Called in this process after every chunk, on Ray after every shard.

    Returns:
        The packed datasets, or the parts of them that were packed, and decisions about the source.

    Raises:
        OptionError: An option is invalid.
        SourceError: The source cannot be read, or with `on_error="fail"` one of its records cannot.
        DestinationError: `dest` exists or cannot be written to, its disk has too little space, another
            process is packing to it, or parts of another source or with other options were packed there.
        PackError: The disk is full, a process died, or the Ray cluster cannot be reached.
        RemoteError: The server of a URL does not answer, or refuses.
        ToolMissingError: `tiled` was requested and jpegtran is not installed.
        LibraryMissingError: OpenCV, Ray, or the package for a URL's protocol cannot be imported.
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
        convert=convert,
    )
    if workers is not None and not (isinstance(workers, int) and workers >= 1):
        raise OptionError(f"workers must be a whole number, at least 1, got {workers!r}")
    check_part(part, on)
    check_fields(fields or ())
    check_apart(source, dest)
    began = time.perf_counter()
    executor_context = executor_for(on, workers, source)
    staging = Staging(dest, overwrite, is_part=part is not None, storage_options=storage_options)
    with signals.unwinding(), staging, executor_context as executor:
        sources = joined_bands(open_source(source, fields, columns, layout), bands)
        job = _PackJob(sources, options, part, executor, workers or usable_cpus(), staging, progress, began)
        try:
            return job.run()
        except BrokenPipeError:  # the reader of the progress is gone
            raise
        except (KeyboardInterrupt, PackError) as error:
            raise job.stopped(error) from error
        except FastloadError:
            raise
        except OSError as error:
            raise job.stopped(describe_failure(error, staging.place.destination)) from error


def _records_of(shards: Iterable[ShardRange]) -> int:
    return sum(shard.end - shard.begin for shard in shards)


@dataclass
class _PackJob:
    """The packing of all splits of a source, or of a part of their shards."""

    sources: Mapping[str, Source]
    options: PackOptions
    part: tuple[int, int] | None
    executor: Executor
    workers: int  # of this machine, which measure some records
    staging: Staging
    progress: Callable[[PackProgress], None] | None
    began: float
    state: PackProgress = field(init=False)
    shards: dict[ShardRange, int] = field(default_factory=dict)  # with their predicted sizes in bytes
    finished: dict[ShardRange, FinishedShard] = field(default_factory=dict)

    def run(self) -> PackResult:
        """Pack every shard that is not finished yet; publish the dataset unless only a part is packed."""
        for source in self.sources.values():
            if not len(source):
                raise SourceError(f"{source.name}: has no records: check the source")
        encoding, reason = self._choose_encoding()
        recipes = {split: self._recipe(split, source, encoding) for split, source in self.sources.items()}
        manifests = {split: self._manifest(self.sources[split], recipe) for split, recipe in recipes.items()}
        journal = self.staging.begin(self._description(manifests))
        partition = journal.partition() or self._partition(recipes, manifests, journal)
        self.shards = partition.part(*self.part or (1, 1))
        self.finished, _ = journal.finished(self.shards)
        finished, resumed = self.finished, _records_of(self.finished)
        if lack := self._lack_of_space():
            raise DestinationError(lack)
        self.state = PackProgress("", resumed, _records_of(self.shards), resumed, 0, 0, 0.0)
        for split, recipe in recipes.items():
            self.state = replace(self.state, split=split)
            if left := [shard for shard in self.shards if shard.split == split and shard not in finished]:
                finished.update(self.executor(recipe, left, journal, self._report))
        manifests = partition.manifests(finished)
        if self.part is None:
            journal.publish(manifests)
        notes = sorted(note for shard in finished.values() for note in shard.notes)
        sources = self.sources.values()
        return PackResult(
            splits=splits_of(self.staging.place.destination, manifests),
            encoding="" if encoding is None else encoding.name,
            reason=reason,
            classes=next(iter(sources)).classes,
            read_bytes=self.state.read_bytes,
            resumed=resumed,
            seconds=time.perf_counter() - self.began,
            warnings=(*(warning for source in sources for warning in source.warnings), *notes),
            doubts=tuple(doubt for source in sources for doubt in source.doubts),
            columns={name: meaning for source in sources for name, meaning in source.columns.items()},
            account=without_skipped(self.sources, {split: each.skipped for split, each in manifests.items()}),
        )

    def stopped(self, error: KeyboardInterrupt | FastloadError) -> KeyboardInterrupt | PackError:
        """Return Ctrl-C or an error, with what is kept of the packing, and what is missing."""
        step = "packing again starts over"
        if self.finished and self.staging.is_resumable:
            done, total = _records_of(self.finished), _records_of(self.shards)
            step = f"{done:,} of {format_count(total, 'record')} are packed, and packing again resumes there"
        if isinstance(error, KeyboardInterrupt):
            return KeyboardInterrupt(step)
        return PackError(f"{self._lack_of_space() or error}; {step}")

    def _lack_of_space(self) -> str:
        left_bytes = sum(size for shard, size in self.shards.items() if shard not in self.finished)
        return self.staging.place.lack_of_space(left_bytes)

    def _choose_encoding(self) -> tuple[Encoding | None, str]:
        """Return the encoding of the images, None if there are none, and the reason if `auto` chose it."""
        options = self.options
        if not self._have_images():
            return None, ""
        name, reason, sources = options.encode, "", self.sources.values()
        pixel_type = first_pixel_type(sources, options.convert)
        if name == "auto":
            name, reason = choose_encoding(
                replace(estimate_stats(sources, options.limit), pixel_type=pixel_type),
                is_resized=options.limit is not None,
                has_jpegtran=find_jpegtran() is not None,
                has_blosc=find_blosc() is not None,
                space_bytes=options.space_bytes,
            )
        encoding = encoding_named(name, options.quality, pixel_type)
        if options.quality is not None and "quality" not in encoding.parameters():
            chosen = f"auto chose {name} ({reason})" if reason else f"{name} has none"
            raise OptionError(f"quality is that of the encoding jpeg, and {chosen}: leave it out")
        encoding.require_tools()
        return encoding, reason

    def _have_images(self) -> bool:
        """Return True if the records of all splits have images, False if none have."""
        with_images = [split for split, source in self.sources.items() if source.has_images]
        if len(with_images) == len(self.sources):
            return True
        name = next(iter(self.sources.values())).name
        if with_images:
            others = [split for split in self.sources if split not in with_images]
            raise SourceError(
                f"{name}: either all splits must have images, or none, got images in "
                f"{', '.join(with_images)} but not in {', '.join(others)}: pack the splits one by one"
            )
        options = self.options
        of_images = {options.quality, options.limit, options.space_bytes, options.convert}
        if options.encode != "auto" or of_images != {None}:
            raise OptionError(
                f"{name}: has no images, to which encode, quality, space, convert and sizes apply: leave "
                "these options out"
            )
        return False

    def _recipe(self, split: str, source: Source, encoding: Encoding | None) -> Recipe:
        image = () if encoding is None else (Field.image("image", encoding.name, encoding.pixel_type),)
        return Recipe(source, (*image, *source.fields), encoding, self.options, split)

    def _manifest(self, source: Source, recipe: Recipe) -> Manifest:
        """Return the manifest of a split without its shards."""
        options = self.options
        further: dict[str, object] = {"columns": dict(source.columns)} if source.columns else {}
        if recipe.encoding is not None:
            further["encoding"] = {"name": recipe.encoding.name, **recipe.encoding.parameters()}
        if source.details or source.is_upright:
            further["details"] = dict(source.details) | ({"is_upright": True} if source.is_upright else {})
        made = {
            "fastload": __version__,
            "opencv": cv2.__version__,
            "source": source.name,
            "source_kind": source.kind,
            "limit": None if options.limit is None else asdict(options.limit),
            "on_error": options.on_error,
            "shard_bytes": options.shard_bytes,
            **further,
        }
        return Manifest(options.format, recipe.fields, source.classes, (), made, left_out=source.left_out)

    def _description(self, manifests: Mapping[str, Manifest]) -> str | None:
        """Return everything that determines the output's bytes; None if the source may change unnoticed."""
        fingerprints = {split: source.fingerprint() for split, source in self.sources.items()}
        if None in fingerprints.values():
            if self.part is not None:
                raise OptionError(
                    "a Python dataset cannot be packed in parts, because it may change between them "
                    "unnoticed: pack it in one go, or on Ray"
                )
            return None
        attached = [source.attached for source in self.sources.values() if source.attached is not None]
        fingerprints["attached"] = digest_of("", attached)
        made = {split: manifest.made for split, manifest in manifests.items()}
        job = {"sources": fingerprints, "options": asdict(self.options), "made": made}
        return json.dumps(job, sort_keys=True)

    def _partition(
        self, recipes: Mapping[str, Recipe], manifests: Mapping[str, Manifest], journal: Journal
    ) -> Partition:
        """Partition the records into shards; save the partition for later runs and for other parts."""
        splits = []
        for split, recipe in recipes.items():
            cuts, sizes_bytes = cut(self.workers, recipe, journal)
            manifest = replace(manifests[split], attachment=self._attach(split, self.sources[split], journal))
            splits.append(SplitPartition(split, tuple(cuts), tuple(sizes_bytes), manifest))
        partition = Partition(tuple(splits), self.part[1] if self.part else 1)
        journal.save_partition(partition)
        return partition

    def _attach(self, split: str, source: Source, journal: Journal) -> Attachment | None:
        """Store the annotation files that a source attaches to its split."""
        files = source.attached
        if files is None:
            return None
        with journal.drafts() as folder:
            draft = folder / ATTACHMENT_NAME
            # A description outside of the dataset comes to its top.
            names = (os.path.basename(name) if name[:3] == "../" else safe_key(name) for name in files.names)
            named = ((name, files.read(index)) for index, name in enumerate(names))
            attachment = write_attachment(draft, named, tuple(self.sources))
            journal.place.store(f"{folder_of(split)}/{ATTACHMENT_NAME}", draft)
        return attachment

    def _report(self, records: int, read_bytes: int, written_bytes: int) -> None:
        """Count what was packed, and report the progress."""
        self.state = replace(
            self.state,
            records=self.state.records + records,
            read_bytes=self.state.read_bytes + read_bytes,
            written_bytes=self.state.written_bytes + written_bytes,
            seconds=time.perf_counter() - self.began,
        )
        if self.progress is not None:
            self.progress(self.state)
