"""How many images a second does each transform do on one core, and how many does torchvision's?

Question: is each of fastload's transforms worth having, that is, at least 1.3 times as fast as torchvision's
v2 on uint8 tensors?

Method: the same photo-like images are prepared in each library's own type: arrays (height, width, 3), tensors
(3, height, width), PIL images. A side draws parameters, transforms, and writes the results into an existing
batch: (images, height, width, 3) for fastload, (images, 3, height, width) for torchvision. Everything runs in
one thread, the sides take turns, and a turn lasts at least 0.1 s. fastload transforms small images, 32×32, as
whole batches, like its datasets. MixUp and CutMix get batches on both sides.

How to read it: the ratio is fastload's rate divided by that of torchvision on tensors. Crops, flips and
resizes at the beginning of a pipeline cost fastload less than here: they are done while decoding.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from _harness import Key, Missing, Reading, Report, Side, Table, options_of, progress, publish, take_turns
from peers.torchvision_operators import declare_operators
from PIL import Image

import fastload.transforms as T
from fastload.transforms.draws import fresh_draws
from fastload.transforms.levels.rescaling import Rescale

FASTLOAD, TENSORS, PICTURES = "fastload", "torchvision v2, uint8 tensors", "torchvision v2, PIL images"

# Readings are scaled to this number of images, whatever the number in a turn.
_COUNT = 1000

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@dataclass(frozen=True)
class Job:
    """A transform to time.

    `title` is the call as shown in the table. `make` makes it from fastload.transforms or
    torchvision.transforms.v2. `is_batched` times it on whole batches of small images, too.
    """

    title: str
    make: Callable[[Any], Any]
    is_batched: bool = False


def _rescaling(module: Any) -> Any:
    return [module.ToDtype(torch.float32, scale=True), module.Normalize(MEAN, STD)]


JOBS = [
    Job("Resize(160)", lambda m: m.Resize(160)),
    Job("Resize(256)", lambda m: m.Resize(256)),
    Job("CenterCrop(200)", lambda m: m.CenterCrop(200)),
    Job("RandomCrop(224, padding=16)", lambda m: m.RandomCrop(224, padding=16), True),
    Job("RandomResizedCrop(224)", lambda m: m.RandomResizedCrop(224)),
    Job("RandomHorizontalFlip()", lambda m: m.RandomHorizontalFlip(), True),
    Job("RandomVerticalFlip()", lambda m: m.RandomVerticalFlip(), True),
    Job("Pad(8)", lambda m: m.Pad(8)),
    Job(
        "RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10)",
        lambda m: m.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10),
    ),
    Job("RandomAffine(20), bilinear", lambda m: m.RandomAffine(20, interpolation=_bilinear(m))),
    Job("RandomRotation(30)", lambda m: m.RandomRotation(30)),
    Job("RandomRotation(30), bilinear", lambda m: m.RandomRotation(30, interpolation=_bilinear(m))),
    Job("ColorJitter(0.4, 0.4, 0.4)", lambda m: m.ColorJitter(0.4, 0.4, 0.4)),
    Job("ColorJitter(0.4, 0.4, 0.4, 0.1)", lambda m: m.ColorJitter(0.4, 0.4, 0.4, 0.1)),
    Job("ColorJitter(brightness=0.4)", lambda m: m.ColorJitter(brightness=0.4)),
    Job("Grayscale(3)", lambda m: m.Grayscale(3)),
    Job("RandomGrayscale(0.5)", lambda m: m.RandomGrayscale(0.5)),
    Job("GaussianBlur(5)", lambda m: m.GaussianBlur(5)),
    Job("GaussianBlur(23)", lambda m: m.GaussianBlur(23)),
    Job("RandomErasing()", lambda m: m.RandomErasing(), True),
    Job("RandomErasing(value='random')", lambda m: m.RandomErasing(value="random")),
    Job("RandAugment()", lambda m: m.RandAugment()),
    Job("TrivialAugmentWide()", lambda m: m.TrivialAugmentWide()),
    Job(
        "RandomApply([ColorJitter(0.4, 0.4)], p=0.5)",
        lambda m: m.RandomApply([m.ColorJitter(0.4, 0.4)], p=0.5),
    ),
    Job("ToDtype(float32, scale=True), Normalize", _rescaling, True),
]


def _bilinear(module: Any) -> Any:
    return "bilinear" if module is T else module.InterpolationMode.BILINEAR


def photos(count: int, side: int) -> list[np.ndarray]:
    """Return images of soft shapes with some grain."""
    rng = np.random.default_rng(0)
    images = []
    for _ in range(count):
        coarse = rng.integers(0, 256, (side // 24 + 2, side // 24 + 2, 3), np.uint8)
        smooth = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC).astype(int)
        images.append(np.clip(smooth + rng.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8))
    return images


class Work:
    """One job on some images of one size, by each side; a turn lasts at least `min_s`.

    With `is_whole`, fastload transforms the whole batch at once.
    """

    def __init__(self, job: Job, images: list[np.ndarray], is_whole: bool, min_s: float) -> None:
        self.job = job
        self.min_s = min_s
        self.images = images
        self.batch = np.stack(images)
        self.tensors = [torch.from_numpy(image).permute(2, 0, 1).contiguous() for image in images]
        self.pictures = [Image.fromarray(image) for image in images]
        self.own = job.make(T)
        self.is_whole = is_whole
        self.out: Any = None

    def sides(self, title: str, v2: Any) -> list[Side]:
        """Return torchvision's sides and fastload's."""
        sides = [
            self._timed(
                Key(title, FASTLOAD), self._rescaled if isinstance(self.own, list) else self._apply_own
            )
        ]
        if v2 is not None:
            made = self.job.make(v2)
            compose = v2.Compose(made if isinstance(made, list) else [made])
            in_pil = v2.Compose(
                [v2.PILToTensor(), compose] if isinstance(made, list) else [compose, v2.PILToTensor()]
            )
            sides = [
                self._timed(Key(title, TENSORS), lambda: self._apply_torchvision(compose, self.tensors)),
                self._timed(Key(title, PICTURES), lambda: self._apply_torchvision(in_pil, self.pictures)),
                *sides,
            ]
        return sides

    def _timed(self, key: Key, turn: Callable[[], None]) -> Side:
        def side() -> dict[Key, Reading]:
            self.out = None
            turn()  # makes the batch that results are written to
            done, began = 0, time.perf_counter()
            while (seconds := time.perf_counter() - began) < self.min_s or not done:
                turn()
                done += len(self.images)
            return {key: Reading(seconds * _COUNT / done)}

        return side

    def _apply_own(self) -> None:
        sizes = np.tile(np.array([self.batch.shape[1:3]], np.int64), (len(self.images), 1))
        parameters = self.own.draw(fresh_draws(len(self.images)), sizes)
        if self.is_whole:
            if self.out is None:
                self.out = self.own.apply_batch(self.batch.copy(), parameters).copy()
            np.copyto(self.out, self.own.apply_batch(self.batch.copy(), parameters))
            return
        for number, row in enumerate(parameters.tolist()):
            result = self.own.apply(self.images[number], row)
            if self.out is None:
                self.out = np.empty((len(self.images), *result.shape), result.dtype)
            np.copyto(self.out[number], result)

    def _rescaled(self) -> None:
        if self.out is None:
            self.out = torch.empty(self.batch.shape).permute(0, 3, 1, 2)
        Rescale.of(self.own, torch.uint8).into(self.batch, self.out)

    def _apply_torchvision(self, transform: Callable[[Any], torch.Tensor], images: list[Any]) -> None:
        for number, image in enumerate(images):
            result = transform(image)
            if self.out is None:
                self.out = torch.empty((len(images), *result.shape), dtype=result.dtype)
            self.out[number].copy_(result)


def mixing_sides(title: str, name: str, v2: Any, count: int, min_s: float) -> list[Side]:
    """Return the sides of MixUp or CutMix for a batch of floats."""
    images, labels = torch.rand(count, 3, 224, 224), torch.arange(count) % 10

    def side(row: str, module: Any) -> Side:
        mix = getattr(module, name)(num_classes=10)

        def turn() -> dict[Key, Reading]:
            done, began = 0, time.perf_counter()
            while (seconds := time.perf_counter() - began) < min_s or not done:
                mix(images, labels)
                done += count
            return {Key(title, row): Reading(seconds * _COUNT / done)}

        return turn

    return [side(row, module) for row, module in ((TENSORS, v2), (FASTLOAD, T)) if module is not None]


def torchvisions() -> Any:
    """Return torchvision's transforms and the operators to keep alive; None if it is not installed."""
    try:
        operators = declare_operators()
        from torchvision.transforms import v2
    except ImportError:
        return None, None
    return v2, operators


def main() -> None:
    options = options_of(
        __doc__, only={"default": "", "metavar": "TEXT", "help": "transforms whose call contains it"}
    )
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    v2, _operators = torchvisions()
    count, small_count, min_s = (2, 4, 0.0) if options.smoke else (16, 256, 0.1)
    large, small = photos(count, 224), photos(small_count, 32)
    work: list[tuple[Table, list[Side]]] = []
    for job in JOBS:
        table = Table(job.title, "images of 224×224", _COUNT)
        work.append((table, Work(job, large, False, min_s).sides(job.title, v2)))
    for job in JOBS:
        if job.is_batched:
            title = f"{job.title}, 32×32".replace("224, padding=16", "32, padding=4")
            small_job = Job(
                title, (lambda m: m.RandomCrop(32, padding=4)) if "RandomCrop" in title else job.make
            )
            sides = Work(small_job, small, True, min_s).sides(title, v2)
            work.append((Table(title, "images of 32×32", _COUNT), sides))
    for name in ("MixUp", "CutMix"):
        title = f"{name}(), batches of {count * 4} × 3×224×224 float32"
        sides = mixing_sides(title, name, v2, count * 4, min_s)
        work.append((Table(title, "mixed images", _COUNT), sides))
    work = [(table, sides) for table, sides in work if options.only in table.title]
    if not work:
        sys.exit(f"no transform's call contains {options.only!r}")
    readings: dict[Key, list[Reading]] = {}
    for table, sides in work:
        progress(table.title)
        readings |= take_turns(sides, options.runs)
    missing = [] if v2 else [Missing(work[0][0].title, TENSORS, "torchvision is not installed")]
    publish(
        Report(
            name="transforms",
            question=__doc__.splitlines()[0],
            setting={"runs": options.runs, "threads": 1, "page cache": "not involved"},
            tables=[table for table, _ in work],
            readings=readings,
            missing=missing,
            versions={},
            is_side_by_side=True,
        ),
        options,
    )


if __name__ == "__main__":
    main()
