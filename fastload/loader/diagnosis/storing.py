"""What can be done about reading and decoding: packing, caching, smaller images, a faster decoder."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from fastload.loader.diagnosis.costs import Costs, chilled_s, on_cpu_share, spent, with_warm_steps
from fastload.loader.diagnosis.extent import batch_samples, made_samples
from fastload.loader.diagnosis.findings import Fix
from fastload.loader.diagnosis.measurements import Decoding, Limits, Measurements, Store
from fastload.loader.diagnosis.verdicts import Work
from fastload.system.units import milliseconds, size

MOST_OF_MEMORY = 0.7
"""Of the memory that is available, what may be filled with data: the rest is the training's to grow into."""

PACKED_S = 50e-6
"""What a sample of a packed dataset takes besides decoding: finding its record, reading and checking it (2 to
9 µs, benchmarks/bench_read.py), making the picture that a transform of one's own is given (measured: 50 to
60 µs in all, in batches of 8 and 32)."""

FROM_ARRAY_S, FROM_ARRAY_S_PER_BYTE = 30e-6, 0.32e-9
"""What `PIL.Image.fromarray` takes, where transforms want PIL's images (measured: 29 µs for 64 × 64 pixels,
0.23 ms for 400 × 500, 0.63 ms for 720 × 960)."""

KEPT_S, KEPT_S_PER_BYTE = 10e-6, 0.25e-9
"""What opening and reading a file takes whose bytes are in memory (measured in a tmpfs, Python's `open` and
`read`: 9 µs for 4 KB, 0.12 ms for 500 KB, 1.1 ms for 4 MB)."""

SEEN_KEPT = 0.6
"""Where later epochs wait for less than this share of what the first one waited, it was the disk's."""

MOST_SLOWDOWN = 2.0
"""Two threads of one core, with all caches shared, take no longer than one after the other."""

_LIBRARIES = {
    "PIL": re.compile(r"→ PIL|\bImage\.open\b|\.convert\("),
    "OpenCV": re.compile(r"→ OpenCV|\bcv2\."),
}

_RESIZING = re.compile(r"resize|crop|thumbnail|reduce\(", re.IGNORECASE)

LEAST_SHARE = 0.15
"""A part of loading that is smaller than this share of it is left alone."""


def storing_fixes(measured: Measurements, costs: Costs, work: Work) -> Iterator[Fix]:
    """What makes reading and decoding cheaper."""
    if work.total_s <= 0:
        return
    if work.storage_s >= LEAST_SHARE * work.total_s:
        yield from _cache_fixes(measured, costs, work)
    if work.decoding_s >= LEAST_SHARE * work.total_s and measured.decoding is not None:
        yield from _decoding_fixes(measured, costs, work, measured.decoding)
    elif work.storage_s >= LEAST_SHARE * work.total_s and measured.setting.encoding is None:
        yield from _packing_for_storage(measured, costs, work)


def _cache_fixes(measured: Measurements, costs: Costs, work: Work) -> Iterator[Fix]:
    store, limits = measured.store, measured.limits
    if store is None or store.size_bytes <= 0 or is_kept_by_kernel(store, limits) or was_kept(measured):
        return
    available = 0 if limits is None or limits.available_bytes is None else limits.available_bytes
    share = min(1.0, MOST_OF_MEMORY * available / store.size_bytes)
    if share <= 0:
        return
    workers = measured.times.num_workers
    kept = 1 - share
    is_cold = costs.most_per_s < float("inf")
    read_s = work.storage_s / made_samples(measured)
    # A transform that sleeps goes on sleeping.
    waited_s = min(costs.blocked_s, read_s)
    # What reading takes of a CPU besides, where the disk is asked, falls to what it takes in memory.
    kept_s = KEPT_S + KEPT_S_PER_BYTE * store.size_bytes / max(1, store.samples)
    asking_s = on_cpu_share(measured) * (read_s - waited_s) + _asking_in_decoding_s(measured, work)
    computed_s = max(0.0, asking_s - kept_s)
    rest_s = max(0.0, costs.cpu_s - share * computed_s)
    rest_s -= chilled_s(rest_s, share * waited_s)
    freed = replace(
        with_warm_steps(costs, share * waited_s, batch_samples(measured)),
        blocked_s=costs.blocked_s - share * waited_s,
        cpu_s=max(rest_s, _least_cpu_s(measured, costs, work)),
        most_per_s=costs.most_per_s / kept if is_cold and kept > 0 else float("inf"),
    )
    actions = list(_ways_to_keep(measured, store, share))
    if not actions:
        return
    whole = "all" if share == 1 else f"{share:.0%}"
    yield Fix(
        "cache",
        f"keep the data in memory: {', or '.join(actions)}",
        freed.throughput(workers) / costs.throughput(workers),
        f"{whole} of the {size(store.size_bytes)} fit into the memory that is available, and "
        f"{work.storage_s / work.total_s:.0%} of loading is waiting for the disk; from the second epoch on",
    )


def _ways_to_keep(measured: Measurements, store: Store, share: float) -> Iterator[str]:
    """How to keep a share of the data in memory, as far as it is known how to."""
    free = 0 if measured.limits is None else measured.limits.shared_memory_free_bytes or 0
    if share == 1 and store.size_bytes < free:
        yield "copy the files to /dev/shm once, and read them there"
    if measured.setting.encoding is not None:
        yield 'fastload.PackedDataset(…, cache="auto")'
    elif not store.are_containers:
        yield 'fastload.FolderDataset(…, cache="auto")'


def _asking_in_decoding_s(measured: Measurements, work: Work) -> float:
    """Of a sample's decoding, what calls that read as well computed to get at the file."""
    if measured.decoding is None:
        return 0.0
    decode_s = _decode_cpu_s(measured, work)
    way = _present_way(measured, measured.decoding, decode_s)
    idle_s = measured.decoding.seconds.get(way, math.inf)
    return max(0.0, decode_s - MOST_SLOWDOWN * idle_s)


def _decode_cpu_s(measured: Measurements, work: Work) -> float:
    """A sample's decoding now, in CPU time: other processes that had the CPUs do not make it dearer."""
    return on_cpu_share(measured) * work.decoding_s / made_samples(measured)


def _least_cpu_s(measured: Measurements, costs: Costs, work: Work) -> float:
    """What a sample computes at least, however little of that was seen beside a slow disk."""
    made, decoding = made_samples(measured), measured.decoding
    least_s = on_cpu_share(measured) * (work.transforms_s + work.collate_s) / made
    if decoding is not None and work.decoding_s > 0:
        way = _present_way(measured, decoding, _decode_cpu_s(measured, work))
        least_s += decoding.seconds.get(way, 0.0)
    return min(costs.cpu_s, least_s)


def is_kept_by_kernel(store: Store, limits: Limits | None) -> bool:
    """Whether the page cache keeps a dataset by itself: a local disk's, and small beside the memory."""
    available = 0 if limits is None or limits.available_bytes is None else limits.available_bytes
    return 2 * store.size_bytes < available and not store.kind.startswith(("network", "fuse"))


def was_kept(measured: Measurements) -> bool:
    """Whether later epochs waited much less than the first one: what was read once stayed in memory."""
    first_s, *later_s = measured.epoch_waits_s or (0.0,)
    return bool(later_s) and max(later_s) < SEEN_KEPT * first_s


def _packing_for_storage(measured: Measurements, costs: Costs, work: Work) -> Iterator[Fix]:
    """Shards are read ahead, and in long runs: what a small file costs in latency falls away."""
    store = measured.store
    if store is None or not store.is_cold or store.sequential_bytes_per_s <= 0 or not store.samples:
        return
    if store.are_containers:
        return
    bytes_each = store.size_bytes / store.samples
    in_runs = store.sequential_bytes_per_s / bytes_each
    if store.random_per_s > 0:
        # Small files read one by one are no long run: what is left without their latency says more.
        in_runs = max(in_runs, 1 / max(1e-6, 1 / store.random_per_s - store.latency_s))
    workers = measured.times.num_workers
    freed = replace(costs, blocked_s=min(costs.blocked_s, 1 / in_runs), most_per_s=max(in_runs, 1.0))
    yield Fix(
        "pack",
        "pack the files into shards: fastload pack FOLDER data.fl, then fastload.PackedDataset('data.fl')",
        freed.throughput(workers) / costs.throughput(workers),
        f"long runs come at {size(in_runs * bytes_each)}/s, files of {size(bytes_each)} at "
        f"{store.random_per_s:,.0f} a second",
        is_bound=True,
    )


def _decoding_fixes(measured: Measurements, costs: Costs, work: Work, decoding: Decoding) -> Iterator[Fix]:
    workers = measured.times.num_workers
    made = made_samples(measured)
    decode_s = _decode_cpu_s(measured, work)
    # Opening and reading a file, out of the page cache, falls away with it; waiting for the disk does not.
    read_s = on_cpu_share(measured) * max(0.0, work.storage_s / made - costs.blocked_s)
    present = measured.setting.encoding or _present_way(measured, decoding, decode_s)
    idle_s = decoding.seconds.get(present, 0.0)
    images = _images_a_sample(decode_s, idle_s)
    slowdown = images * _slowdown(workers, decode_s, images * idle_s)
    ways = {way: slowdown * seconds for way, seconds in decoding.seconds.items()}
    what = "an image" if images == 1 else "a sample's several images"

    def gain(
        seconds: float, most_per_s: float = math.inf, spared_s: float = 0.0, added_s: float = 0.0
    ) -> float:
        less_s = max(0.0, decode_s - seconds)
        rest_s = max(0.0, costs.cpu_s - decode_s - spared_s)
        freed = replace(
            with_warm_steps(costs, less_s, batch_samples(measured)),
            cpu_s=rest_s - chilled_s(rest_s, less_s) + min(seconds, decode_s) + added_s,
            most_per_s=min(costs.most_per_s, most_per_s),
        )
        return freed.throughput(workers) / costs.throughput(workers)

    packed_s = PACKED_S + _from_array_s(measured, decoding.height * decoding.width)
    opencv_s = ways.get("OpenCV")
    if present == "PIL" and opencv_s is not None and opencv_s < decode_s:
        yield Fix(
            "decoder",
            "decode with OpenCV: fastload.FolderDataset in place of ImageFolder, or fastload.images.decode",
            gain(opencv_s, added_s=_from_array_s(measured, decoding.height * decoding.width)),
            f"decoding {what} takes {milliseconds(decode_s)} now, and {milliseconds(opencv_s)} with OpenCV",
        )
    for encoding in ("raw", "tiled"):
        seconds = ways.get(encoding)
        if seconds is None or present == encoding or seconds >= decode_s:
            continue
        count = measured.store.samples if measured.store is not None else 0
        room = f", {size(count * decoding.stored_bytes[encoding])} in all" if count else ""
        yield Fix(
            "pack",
            f"fastload pack FOLDER data.fl --encode {encoding}, then fastload.PackedDataset('data.fl', "
            "transform=…)",
            gain(seconds, _read_per_s(measured, decoding.stored_bytes[encoding]), read_s, packed_s),
            f"decoding {what} takes {milliseconds(decode_s)} now, and {milliseconds(seconds)} from "
            f"{encoding} "
            f"({size(decoding.stored_bytes[encoding])} an image{room})",
        )
    if decoding.shrunk_s is not None and slowdown * decoding.shrunk_s < decode_s:
        shrunk_pixels = decoding.height * decoding.width * (1 - _spared_share(decoding))
        yield Fix(
            "shrink",
            f"store smaller images: fastload pack FOLDER data.fl --shorter-side {decoding.shrunk_side}",
            gain(
                slowdown * decoding.shrunk_s,
                spared_s=read_s + _resizing_s(measured, work, decoding),
                added_s=PACKED_S + _from_array_s(measured, shrunk_pixels),
            ),
            f"they have {decoding.width:.0f} × {decoding.height:.0f} pixels on average, and the model "
            "sees fewer",
        )


def _from_array_s(measured: Measurements, pixels: float) -> float:
    """What making a PIL image of decoded pixels takes, if transforms need one."""
    return FROM_ARRAY_S + FROM_ARRAY_S_PER_BYTE * 3 * pixels if measured.transforms_pil else 0.0


def _spared_share(decoding: Decoding) -> float:
    """The share of its pixels that an image loses when it is shrunk."""
    side = min(decoding.height, decoding.width)
    return max(0.0, 1 - (decoding.shrunk_side / max(1.0, side)) ** 2)


def _resizing_s(measured: Measurements, work: Work, decoding: Decoding) -> float:
    """What resizing a sample would take less of images that were shrunk before: it goes by their pixels."""
    transforms = [seen for seen in measured.loading if seen.activity == "transform" and seen.place]
    taken_s = sum(seen.seconds for seen in transforms)
    resizing_s = sum(seen.seconds for seen in transforms if _RESIZING.search(seen.place))
    if taken_s <= 0:
        return 0.0
    transforms_s = on_cpu_share(measured) * work.transforms_s / made_samples(measured)
    return _spared_share(decoding) * resizing_s / taken_s * transforms_s


def _read_per_s(measured: Measurements, stored_bytes: float) -> float:
    """What the disk gives of larger records, where memory does not hold them all after the first epoch."""
    store, limits = measured.store, measured.limits
    if store is None or limits is None or limits.available_bytes is None or not store.is_cold:
        return math.inf
    if (
        store.samples * stored_bytes < MOST_OF_MEMORY * limits.available_bytes
        or store.sequential_bytes_per_s <= 0
    ):
        return math.inf
    return store.sequential_bytes_per_s / stored_bytes


def _images_a_sample(decode_s: float, idle_s: float) -> float:
    """About how many images a sample is made of: mosaics and clips take more than a busy core explains."""
    ratio = decode_s / idle_s if idle_s > 0 else 1.0
    return ratio if ratio > MOST_SLOWDOWN else 1.0


def _slowdown(workers: int, decode_s: float, idle_s: float) -> float:
    """How much longer decoding takes in the training than on an idle core, in whatever way.

    Beside other workers only: what a process by itself takes longer, reading or swapping channels, is its own
    call's.
    """
    return min(MOST_SLOWDOWN, max(1.0, decode_s / idle_s)) if workers and idle_s > 0 else 1.0


def _present_way(measured: Measurements, decoding: Decoding, decode_s: float) -> str:
    """What decodes now, as the lines show that were seen decoding; "" for what was not timed.

    Where no line was noted, it is the one of the two libraries that takes most nearly as long.
    """
    seen = [one for one in measured.loading if one.activity in ("decode", "load") and one.place]
    taken_s = {
        way: sum(one.seconds for one in seen if calls.search(one.place)) for way, calls in _LIBRARIES.items()
    }
    most = max(taken_s, key=lambda way: taken_s[way])
    if taken_s[most] > 0.5 * spent(measured.loading, "decode", "load"):
        return most
    ways = {name: decoding.seconds[name] for name in ("PIL", "OpenCV") if name in decoding.seconds}
    return min(ways, key=lambda name: abs(ways[name] - decode_s), default="")
