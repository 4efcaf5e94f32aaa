"""How fast do training loops get photos from an object store?

Question: how many augmented photos a second do loaders deliver that read from one S3 server, how soon is the
first batch there, how much is fetched, and what does it take on the disk?

Method. Photos become 224×224, uint8, by a random resized crop (bilinear, not antialiased) and a flip, in
batches of 64. They come from `--photos`, a folder of class folders, or are generated with the file size of
ImageNet's. Each side writes them in its own format, in shards of 16 MB, and these are uploaded to an S3
server on this machine: moto's, in a process of its own. Its CPU time is part of the machine's, and it reads
the whole object for each part that is requested. Then the sides take turns. A turn begins with new processes
and an empty cache: one rank, or two that share the cache, with two workers each. The first epoch is "cold",
the next one of the same processes "warm". The peers are configured as their documentation says:

- *MosaicML Streaming*: MDS shards of the files' bytes, `shuffle=True` (py1e), decoded by OpenCV. Its shuffle
  spreads a shard over more samples than these datasets have.
- *LitData*: optimized chunks of the files' bytes, `shuffle=True`: chunks in random order, samples shuffled
  within a chunk; decoded by OpenCV; fetched by obstore. Of a chunk that two of its workers share, it reads
  much more than the samples, and it may fetch it twice: with larger chunks, more of them are shared.
- *fastload*: a packed dataset of the files' bytes (keep), or of the same pixels in tiles (tiled), shuffled by
  `ShardedSampler(window=1)`: shards in random order, samples shuffled within a shard, as in LitData. In the
  row "shuffled fully", all samples are shuffled together.

A second part has fastload read from the same server while that sends no more than a given speed. Training
steps are pauses. The network that they need is the bytes of the ranks' batches in the time of a step; the
server gives 1.2, 0.8 and 0.5 times as much.

Reading it. A time is that of an epoch from its beginning, when the ranks meet and have imported the library:
a cold one includes opening the dataset, with what is imported only for it (fastload's client of the object
store), and starting workers. "First batch" begins at the same moment. With two ranks, both are the slower
rank's. "Fetched": the content that the server sent in the epoch. "Stored": the files in the cache after it.
"CPU": that of the ranks and their workers, without the server's. The last table is the second part: the time
that the slowest rank waited for batches after the first one, and the time that it must wait if a shard can be
used once it is complete: for each shard but the first, what its download takes longer than the steps with a
shard. A network of 1.2 times the need makes nobody wait.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from _harness import (
    PEERS_OPTION,
    Comparison,
    Key,
    Missing,
    Reading,
    Report,
    Table,
    folder_bytes,
    options_of,
    progress,
    publish_json,
    take_turns,
    work_folder,
)
from _object_server import ObjectServer
from _photos import copy_folder, make_folder
from _program import LoaderFailedError
from _remote_ranks import Datasets, RemoteEpoch
from _sides import PEERS, Side, choose_sides
from _slow_network import slow_network_grid, slow_network_rows

_STATES = ("cold", "warm")
_PEER_NAMES = {"MosaicML Streaming": "streaming", "LitData": "litdata"}
_WINDOW = 1  # shard, as in LitData


def main() -> None:
    options = options_of(
        __doc__,
        photos={"type": Path, "metavar": "FOLDER", "help": "a folder of class folders (made here)"},
        images={"type": int, "metavar": "N", "help": "photos in an epoch (4,000)"},
        workers={"type": int, "metavar": "N", "default": 2, "help": "workers of each rank (2)"},
        peers=PEERS_OPTION,
        only={"metavar": "WORDS", "help": "only sides with one of these words, after commas; not saved"},
    )
    options.images = options.images or (32 if options.smoke else 4_000)
    with work_folder(options) as folder, ObjectServer() as server:
        publish_json(measure(options, folder, server), options)


def measure(options: argparse.Namespace, folder: Path, server: ObjectServer) -> dict[str, Any]:
    """Run both parts."""
    source = folder / "photos"
    progress(f"making {options.images} photos")
    if options.photos is None:
        make_folder(source, options.images)
    else:
        copy_folder(options.photos, source, options.images)
    datasets = Datasets(server, folder, options.peers, job_of(options, source))
    bench = Bench(options, datasets)
    bench.run()
    side = fastload_side("", "keep", _WINDOW)
    url = bench.urls.get("fastload, keep") if options.smoke else None
    if url is None:
        fewer = folder / "fewer-photos"
        copy_folder(source, fewer, options.images // 2)
        # Many shards, as in a large dataset, so that the first and the last count little.
        url, _ = datasets.write(side, "slow-network", source=str(fewer), shard_size="8MB")
    slow = slow_network_rows(datasets, side, url, options.runs, options.smoke)
    report = Report(
        name="remote",
        question=str(__doc__).partition("\n")[0],
        setting={
            "photos": f"{options.images} {'made by the benchmark' if options.photos is None else 'given'}, "
            f"{folder_bytes(source) // options.images} bytes each",
            "runs": options.runs,
            "workers of a rank": options.workers,
            "page cache": "warm",
        },
        tables=[Table(title, "images", options.images) for title in bench.titles],
        readings=bench.readings,
        missing=bench.missing,
        versions=bench.versions,
        comparisons=comparisons(bench.titles),
    )
    return report.to_json() | {"slow_network": slow, "grids": [slow_network_grid(slow)]}


def job_of(options: argparse.Namespace, source: Path) -> dict[str, Any]:
    """Return the part of the ranks' instructions that all sides share."""
    return {
        "source": str(source),
        "size": 224,
        "batch_size": 4 if options.smoke else 64,
        "workers": options.workers,
        "device": None,
        "shard_size": "1MB" if options.smoke else "16MB",
        "step_s": 0.0,
    }


def sides() -> list[Side]:
    """Return all sides of the first part."""
    peers = [
        Side(name, peer, PEERS / f"remote_{peer}.py", {}, in_smoke=True) for name, peer in _PEER_NAMES.items()
    ]
    return [
        *peers,
        fastload_side("fastload, keep", "keep", _WINDOW, in_smoke=True),
        fastload_side("fastload, tiled", "tiled", _WINDOW),
        fastload_side("fastload, tiled, shuffled fully", "tiled", None),
    ]


def fastload_side(name: str, store: str, window: int | None, in_smoke: bool = False) -> Side:
    """Return a side of fastload."""
    return Side(name, "", PEERS / "remote_fastload.py", {"store": store, "window": window}, in_smoke)


def title_of(ranks: int, state: str) -> str:
    """Return the title of a table."""
    return f"{ranks} rank{'s' if ranks > 1 else ''}, {state}"


def comparisons(titles: list[str]) -> list[Comparison]:
    """Return the pairs of rows that are divided: fastload's by each peer's."""
    own = [side.name for side in sides() if not side.environment]
    return [
        Comparison(Key(title, row), Key(title, peer))
        for title in titles
        for row in own
        for peer in _PEER_NAMES
    ]


class Bench:
    """The first part: all sides in turns; filled by `run`."""

    def __init__(self, options: argparse.Namespace, datasets: Datasets) -> None:
        self._options = options
        self._datasets = datasets
        self._ranks = (1,) if options.smoke else (1, 2)
        self.urls: dict[str, str] = {}
        self.titles = [title_of(ranks, state) for ranks in self._ranks for state in _STATES]
        self.readings: Mapping[Key, list[Reading]] = {}
        self.missing: list[Missing] = []
        self.versions: dict[str, str] = {}

    def run(self) -> None:
        words = [word.strip() for word in (self._options.only or "").split(",") if word]
        chosen = choose_sides(sides(), words, self._options.smoke)
        for side in chosen:
            progress(f"writing: {side.name}")
            self._write(side)
        turns = [
            partial(self._turn, side, ranks)
            for ranks in self._ranks
            for side in chosen
            if side.name in self.urls
        ]
        readings = take_turns(turns, self._options.runs)
        lacking = {Key(each.table, each.row) for each in self.missing}
        self.readings = {key: found for key, found in readings.items() if key not in lacking}

    def _write(self, side: Side) -> None:
        """Write a side's dataset, unless another side has the same."""
        same = next(
            (each for each in sides() if each.name in self.urls and _dataset(each) == _dataset(side)), None
        )
        if same is not None:
            self.urls[side.name] = self.urls[same.name]
            return
        lacks = side.lacks(self._options.peers)
        try:
            if lacks is None:
                self.urls[side.name], versions = self._datasets.write(side, _dataset(side))
                self.versions |= versions
        except LoaderFailedError as error:
            lacks = str(error)
        if lacks is not None:
            self.missing += [Missing(title, side.name, lacks) for title in self.titles]

    def _turn(self, side: Side, ranks: int) -> dict[Key, Reading]:
        keys = [Key(title_of(ranks, state), side.name) for state in _STATES]
        if any(Key(each.table, each.row) == keys[0] for each in self.missing):
            return {}
        try:
            with self._datasets.ranks(side, self.urls[side.name], ranks) as load_epoch:
                return {key: self._reading(load_epoch()) for key in keys}
        except LoaderFailedError as error:
            self.missing += [Missing(key.table, side.name, str(error)) for key in keys]
            return {}

    def _reading(self, epoch: RemoteEpoch) -> Reading:
        share = self._options.images / epoch.samples
        return Reading(
            epoch.seconds * share,
            epoch.cpu_s * share,
            stored_bytes=epoch.cache_bytes,
            first_batch_s=epoch.first_batch_s,
            fetched_bytes=epoch.fetched_bytes,
        )


def _dataset(side: Side) -> str:
    return f"{side.environment or 'fastload'}-{side.job.get('store', 'files')}"


if __name__ == "__main__":
    main()
