"""What do a million, ten and a hundred million records cost?

Question: how do time and memory of packing, opening, shuffling and verifying grow with them?

Method. Records of a label and eight numbers, from a Python dataset: so small that nothing but the number of
records matters. Each step runs in a new process; packing and verifying start two more. A hundred million are
simulated: all shards are copies of one, with numbers in place of its identity, and read without verification.

Reading it. Times are CPU times, those of other processes included, per record where the step touches all of
them. "Memory" is by how much the step's own process grew at most, without the pages of mapped files, which
the kernel can drop; a process for verifying grows by as much. "First batch": a shuffled epoch begins, and
256 records are read.
"""

from __future__ import annotations

import multiprocessing
import resource
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _harness import identified, options_of, progress, publish_json, work_folder

import fastload
from fastload.shards.manifest import read_manifest
from fastload.system.units import format_duration, format_size

_HEADS = {
    "pack": "pack: CPU per record",
    "open": "open: CPU",
    "first batch": "first batch: CPU",
    "verify": "verify: CPU per record",
}
_STEPS = tuple(_HEADS)


class Numbers:
    """A Python dataset of (vector, label)."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full(8, index, np.float32), index % 1000


def main() -> None:
    options = options_of(__doc__)
    packed, simulated = ((1000, 3000), 5000) if options.smoke else ((10**6, 10**7), 10**8)
    rows = []
    with work_folder(options) as folder:
        for count in packed:
            rows.append({"records": count, "simulated": False, **costs(folder / f"{count}.fl", count)})
        many = simulate(folder, simulated, min(simulated // 100, 1 << 18))
        steps = {"open": (open_dataset, many), "first batch": (first_batch, many, "never")}
        rows.append({"records": simulated, "simulated": True, **measured(steps)})
    setting = {"record": "label and 8 × float32", "workers": 2, "page cache": "warm"}
    content = {
        **identified("many_records", str(__doc__).partition("\n")[0], setting, {}),
        "costs": rows,
        "tables": [],
        "rows": [],
        "missing": [],
        "grids": [grid(rows)],
    }
    publish_json(content, options)


def costs(path: Path, count: int) -> dict[str, Any]:
    """Return the costs of each step with a dataset that is packed here."""
    steps = {
        "pack": (pack, path, count),
        "open": (open_dataset, path),
        "first batch": (first_batch, path, "once"),
        "verify": (verify, path),
    }
    return measured(steps)


def measured(steps: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Run steps, each in a new process; return the CPU time and the growth of each."""
    found = {}
    context = multiprocessing.get_context("spawn")
    for name, (work, *arguments) in steps.items():
        progress(f"{name}: {arguments[0].name}")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=run_step, args=(sender, work, arguments))
        process.start()
        found[name] = receiver.recv()
        process.join()
    return found


def run_step(sender: Any, work: Callable[..., None], arguments: list[Any]) -> None:
    """Send the CPU time of a step and the most memory by which this process grew."""
    import fastload.loader.dataloader
    import fastload.packing.job  # noqa: F401 - imports are no part of the step

    peak = before = own_bytes()
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.02):
            peak = max(peak, own_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = cpu_s()
    work(*arguments)
    spent = cpu_s() - began
    peak = max(peak, own_bytes())
    ended.set()
    watcher.join()
    sender.send({"cpu_s": round(spent, 4), "bytes": peak - before})


def own_bytes() -> int:
    """Return the memory of this process, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))


def cpu_s() -> float:
    """Return the CPU time of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pack(path: Path, count: int) -> None:
    fastload.pack(Numbers(count), path, workers=2)


def open_dataset(path: Path) -> None:
    fastload.PackedDataset(path)


def first_batch(path: Path, check: str) -> None:
    dataset = fastload.PackedDataset(path, verify=check)
    next(iter(fastload.DataLoader(dataset, 256, shuffle=True, seed=0, sharded=True, num_workers=0)))


def verify(path: Path) -> None:
    result = fastload.verify(path, workers=2)
    assert not result.damages


def simulate(folder: Path, count: int, shard_records: int) -> Path:
    """Make a dataset whose shards are copies of one, with other identities; return its folder."""
    one, path = folder / "one.fl", folder / f"{count}.fl"
    fastload.pack(range(shard_records), one, workers=2)
    manifest = read_manifest(one)
    entry = manifest.shards[0]
    data = (one / entry.file).read_bytes()
    path.mkdir()
    shards = []
    for number in range(count // entry.records):
        identity = number.to_bytes(16, "big")
        shard = replace(entry, file=f"shard-{number:05d}.h5", identity=identity.hex())
        (path / shard.file).write_bytes(data.replace(bytes.fromhex(entry.identity), identity, 1))
        shards.append(shard)
    (path / "manifest.json").write_bytes(replace(manifest, shards=tuple(shards)).to_bytes())
    return path


def grid(rows: list[dict[str, Any]]) -> dict[str, Any]:
    cells = []
    for row in rows:
        texts = [f"{row['records']:,}{' (simulated)' if row['simulated'] else ''}"]
        for step in _STEPS:
            if (cost := row.get(step)) is None:
                texts += ["–", "–"]
                continue
            touches_all = step in ("pack", "verify")
            seconds = cost["cpu_s"] / row["records"] if touches_all else cost["cpu_s"]
            texts += [format_duration(seconds), format_size(cost["bytes"])]
        cells.append(texts)
    heads = [head for step in _STEPS for head in (_HEADS[step], f"{step}: memory")]
    return {"heads": ["Records", *heads], "rows": cells}


if __name__ == "__main__":
    main()
