"""What does the transport from a worker to the training process cost?

Question: how many samples a second does a DataLoader move if making them costs next to nothing?

Method: each job is a dataset whose samples are in memory, loaded by torch's DataLoader and by fastload's with
the same settings (2 workers unless stated otherwise) and a consumer that does nothing. A whole iteration is
timed, from the first batch to the end; for the last table, from `iter()` to the first batch, start of the
workers included. Jobs of several epochs are timed from start to end.

Reading it: the first group is batches of images, the main purpose of fastload's transport. The others check
that nothing gets slower: a row within a few per cent of torch's is as fast. With real data, loading takes
longer than transport: the gain is CPU time of both processes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.utils.data
from _harness import Key, Reading, Report, Table, options_of, publish, take_turns

import fastload

LOADERS = {"torch DataLoader": torch.utils.data.DataLoader, "fastload.DataLoader": fastload.DataLoader}
FIRST = "First batch"


class Ready(torch.utils.data.Dataset[Any]):
    """A dataset that returns the same ready sample every time."""

    def __init__(self, sample: Any, length: int) -> None:
        self.sample = sample
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.sample


class Fresh(Ready):
    """A dataset that returns a new tensor of a given length every time."""

    def __getitem__(self, index: int) -> Any:
        return torch.ones(self.sample)


class ReadyStream(torch.utils.data.IterableDataset[Any]):
    """A stream of one ready sample, divided among the workers."""

    def __init__(self, sample: Any, length: int) -> None:
        self.sample = sample
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        return (self.sample for _ in range(self.length // (worker.num_workers if worker else 1)))


@dataclass(frozen=True)
class Job:
    """A dataset to load, made from one sample.

    With `batch_size` None a sample is a batch. Several epochs are timed together, from start to end.
    `options` are the DataLoader's.
    """

    title: str
    sample: Any
    batch_size: int | None
    batches: int
    epochs: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    dataset: Callable[[Any, int], Any] = Ready

    @property
    def samples(self) -> int:
        """Return the number of timed samples: in a single epoch, those of the first batch are not timed."""
        batches = self.batches * self.epochs - (self.epochs == 1)
        return batches * (self.batch_size or 1)

    def loader(self, kind: Any, workers: int) -> Any:
        """Return a loader for the job."""
        dataset = self.dataset(self.sample, self.batches * (self.batch_size or 1))
        return kind(dataset, self.batch_size, **{"num_workers": workers, **self.options})


def jobs(scale: float) -> list[Job]:
    """Return the jobs, images first; `scale` is the relative length of their epochs."""

    def batches(number: int) -> int:
        return max(3, int(number * scale))

    def image(*shape: int, dtype: torch.dtype = torch.float32) -> Any:
        return torch.ones(shape).to(dtype), 1

    small = {f"field {number}": torch.ones(8) for number in range(20)}
    return [
        Job("256 × 3×224×224 float32", image(3, 224, 224), 256, batches(60)),
        Job("256 × 3×224×224 uint8", image(3, 224, 224, dtype=torch.uint8), 256, batches(200)),
        Job("64 × 3×224×224 float32", image(3, 224, 224), 64, batches(240)),
        Job("16 × 3×640×640 uint8", image(3, 640, 640, dtype=torch.uint8), 16, batches(400)),
        Job("256 × 3×32×32 float32", image(3, 32, 32), 256, batches(1200)),
        Job("256 numbers", 1.5, 256, batches(6000)),
        Job("256 strings", "n01440764/n01440764_10026.JPEG", 256, batches(5000)),
        Job("64 dicts of 20 small tensors", small, 64, batches(500)),
        Job("64 pairs of NumPy arrays", (np.ones((3, 96, 96), np.float32), np.ones(5)), 64, batches(800)),
        Job(
            "64 tensors of many lengths, in a list",
            torch.ones(3000),
            64,
            batches(250),
            options={"collate_fn": ragged},
        ),
        Job(
            "16 images and a dict, own collate_fn",
            image(3, 128, 128),
            16,
            batches(1500),
            options={"collate_fn": own_collate},
        ),
        Job("32 × 3×128×128, iterable", image(3, 128, 128), 32, batches(500), dataset=ReadyStream),
        Job("single tensors of 1 KB, batch_size=None", torch.ones(256), None, batches(8000)),
        Job("one ready tensor of 64 MB, batch_size=None", torch.ones(1 << 24), None, batches(1000)),
        Job("new tensors of 64 MB, batch_size=None", 1 << 24, None, batches(60), dataset=Fresh),
        Job("8 MB of bytes, own collate_fn", bytes(1 << 20), 8, batches(150), options={"collate_fn": list}),
        Job("no workers, 64 × 3×32×32", image(3, 32, 32), 64, batches(8000), options={"num_workers": 0}),
        Job("32 samples, 20 epochs", image(3, 32, 32), 8, 4, epochs=max(2, int(20 * scale))),
        Job(
            "32 samples, 300 epochs, persistent workers",
            image(3, 32, 32),
            8,
            4,
            epochs=max(2, int(300 * scale)),
            options={"persistent_workers": True},
        ),
    ]


def ragged(samples: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return pieces of many lengths."""
    return [sample[: 40 * number] for number, sample in enumerate(samples)]


def own_collate(samples: list[Any]) -> dict[str, Any]:
    """Collate as many users do: stack the images and name the fields."""
    return {
        "pixel_values": torch.stack([image for image, _ in samples]),
        "labels": torch.tensor([label for _, label in samples]),
        "meta": {"size": len(samples), "names": ["image"] * len(samples)},
    }


def side(job: Job, name: str, workers: int) -> Callable[[], dict[Key, Reading]]:
    """Return the side of one loader for one job."""

    def turn() -> dict[Key, Reading]:
        loader = job.loader(LOADERS[name], workers)
        began = time.perf_counter()
        iterator = iter(loader)
        next(iterator)
        first = time.perf_counter()
        for _ in iterator:
            pass
        for _ in range(job.epochs - 1):
            for _ in loader:
                pass
        ended = time.perf_counter()
        seconds = ended - (first if job.epochs == 1 else began)
        return {
            Key(job.title, name): Reading(seconds),
            Key(f"{FIRST}, {job.title}", name): Reading(first - began),
        }

    return turn


def main() -> None:
    options = options_of(
        __doc__,
        workers={"type": int, "default": 2, "metavar": "N", "help": "of the loaders (2)"},
        only={"default": "", "metavar": "TEXT", "help": "jobs whose title contains it"},
    )
    chosen = [job for job in jobs(0.01 if options.smoke else 1.0) if options.only in job.title]
    if not chosen:
        sys.exit(f"no job's title contains {options.only!r}")
    readings: dict[Key, list[Reading]] = {}
    for job in chosen:
        print(job.title, file=sys.stderr)
        sides = [side(job, name, options.workers) for name in LOADERS]
        readings |= take_turns(sides, options.runs)
    starts = [job for job in chosen if job in chosen[:1] or job.title == "256 × 3×32×32 float32"]
    tables = [Table(job.title, "samples", job.samples) for job in chosen]
    tables += [Table(f"{FIRST}, {job.title}", "batches", 1) for job in starts]
    titles = {table.title for table in tables}
    publish(
        Report(
            name="transport",
            question=__doc__.splitlines()[0],
            setting={"runs": options.runs, "workers": options.workers, "page cache": "not involved"},
            tables=tables,
            readings={key: value for key, value in readings.items() if key.table in titles},
            missing=[],
            versions={},
            is_side_by_side=True,
        ),
        options,
    )


if __name__ == "__main__":
    main()
