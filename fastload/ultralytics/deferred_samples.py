"""Replacements in Ultralytics while it is patched, above all of samples and batches.

The images of samples are deferred until a batch is made.
"""

from __future__ import annotations

import copy
import functools
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from ultralytics.data import base
from ultralytics.data.build import InfiniteDataLoader
from ultralytics.data.dataset import YOLOConcatDataset, YOLODataset
from ultralytics.utils import LOGGER, dist

from fastload.contracts import BatchMemory
from fastload.datasets.batch import HostMemory
from fastload.loader.dataloader import DataLoader
from fastload.system.patching import Replacement
from fastload.ultralytics.bgr_image import BgrImage
from fastload.ultralytics.caches import ImagesInMemory, cache_replacements
from fastload.ultralytics.collating import PatchedCollate
from fastload.ultralytics.packed import packed_replacements
from fastload.ultralytics.steps import Labels, step_replacements, unknown_steps

_plain_item = base.BaseDataset.__getitem__
_plain_label = base.BaseDataset.get_image_and_label
_plain_collate = YOLODataset.collate_fn
_plain_init = InfiniteDataLoader.__init__
_plain_ddp_file = dist.generate_ddp_file

# Prefix of the program of a rank, which Ultralytics writes.
_RANK = """if __name__ == "__main__":
    import sys
    sys.path = {path!r}
    import fastload.ultralytics
    fastload.ultralytics.patch()
"""


class _ThreadState(threading.local):
    """State of a thread.

    Attributes:
        dataset: The dataset whose sample is being made.
        is_worker: True in a worker that makes batches.
    """

    dataset: base.BaseDataset = None
    is_worker = False


_thread = _ThreadState()


def replacements(rank_programs: list[str], patch: Callable[[], object]) -> list[Replacement]:
    """Return the replacements of attributes: (owner, name, value).

    Args:
        rank_programs: List to which the files with the programs of ranks are appended.
        patch: Patches Ultralytics, in workers that were not forked.
    """

    @functools.wraps(_plain_ddp_file)
    def generate_ddp_file(trainer: object) -> str:
        name: str = _plain_ddp_file(trainer)
        file = Path(name)
        file.write_text(_RANK.format(path=sys.path) + file.read_text(encoding="utf-8"), encoding="utf-8")
        rank_programs.append(name)
        return name

    @functools.wraps(_plain_init)
    def init(self: InfiniteDataLoader, *args: object, **options: object) -> None:
        if options.get("collate_fn") in (YOLODataset.collate_fn, YOLOConcatDataset.collate_fn):
            dataset = options.get("dataset")
            # Determined here, so that the reason is logged once and not by each worker.
            reason = unsupported_reason(dataset) if isinstance(dataset, base.BaseDataset) else ""
            start = functools.partial(_start_worker, patch, options.get("worker_init_fn"))
            options |= {"collate_fn": Batches(reason), "worker_init_fn": start, "compile": False}
        _plain_init(self, *args, **options)

    is_ours = issubclass(InfiniteDataLoader, DataLoader)  # as it is below `fastload run`
    return [
        *([] if is_ours else [(InfiniteDataLoader, "__bases__", (DataLoader,))]),
        (InfiniteDataLoader, "__init__", init),
        (dist, "generate_ddp_file", generate_ddp_file),
        (base.BaseDataset, "__getitem__", _item),
        (base.BaseDataset, "get_image_and_label", _image_and_label),
        *step_replacements(lambda: _thread.is_worker),
        *cache_replacements(),
        *packed_replacements(),
    ]


def _start_worker(patch: Callable[[], object], function: object, worker: int) -> None:
    """Defer images until a batch is made; patch a worker that was not forked; call the loader's function."""
    patch()
    _thread.is_worker = True
    if callable(function):
        function(worker)


@functools.wraps(_plain_item)
def _item(self: base.BaseDataset, index: int) -> Labels:
    if unsupported_reason(self):
        return _plain_item(self, index)  # type: ignore[no-any-return]
    before, _thread.dataset = _thread.dataset, self
    try:
        return self.transforms(self.get_image_and_label(index))  # type: ignore[no-any-return]
    finally:
        _thread.dataset = before


@functools.wraps(_plain_label)
def _image_and_label(self: base.BaseDataset, index: int) -> Labels:
    if _thread.dataset is not self:
        return _plain_label(self, index)  # type: ignore[no-any-return]
    label = {name: _copied(value) for name, value in self.labels[index].items() if name != "shape"}
    stored = self.ims.image(index) if isinstance(self.ims, ImagesInMemory) else None
    if stored is None:
        pixels, original, resized = self.load_image(index)
        stored = BgrImage.of(pixels), original, resized
    label["img"], original, resized = stored
    label["ori_shape"], label["resized_shape"] = original, resized
    label["ratio_pad"] = resized[0] / original[0], resized[1] / original[1]
    if self.rect:
        label["rect_shape"] = self.batch_shapes[self.batch[index]]
    return self.update_labels_info(label)  # type: ignore[no-any-return]


def _copied(value: object) -> object:
    """Return a deep copy of an entry of a label."""
    return value.copy() if type(value) is np.ndarray else copy.deepcopy(value)  # which takes 5 µs an array


def unsupported_reason(dataset: base.BaseDataset) -> str:
    """Return why fastload cannot make a dataset's samples, and log it once; "" if it can."""
    reason = _find_reason(dataset)
    # A callback may have added a step since the last call.
    if reason and reason != dataset.__dict__.get("_fastload_reason"):
        LOGGER.info(f"{dataset.prefix}fastload: {reason}, so each sample is made by Ultralytics itself")
    dataset.__dict__["_fastload_reason"] = reason
    return reason


def _find_reason(dataset: base.BaseDataset) -> str:
    kind = type(dataset)
    if kind.__getitem__ is not _item or kind.get_image_and_label is not _image_and_label:
        return f"{kind.__name__} makes samples in a way of its own"
    if dataset.channels != 3:
        return f"its images have {dataset.channels} channels"
    if unknown := unknown_steps(dataset.transforms):
        return f"{', '.join(unknown)} may change pixels"
    return ""


class Batches(PatchedCollate):
    """A collate function that renders deferred images in the batch's final memory.

    Args:
        reason: Why samples have no deferred images, or "".
    """

    def __init__(self, reason: str = "") -> None:
        self.changes = "its images are made by fastload.ultralytics: see the documentation, 'Ultralytics'"
        if reason:
            self.changes = (
                f"its images are made by Ultralytics, because {reason}; fastload.ultralytics moves them"
            )

    def __call__(self, samples: Sequence[Labels]) -> Labels:
        """Return the batch in ordinary memory."""
        return self.collate_into(samples, HostMemory())

    def collate_into(self, samples: Sequence[Labels], out: BatchMemory) -> Labels:
        """Return the batch, with the images in `out`."""
        images = [sample.get("img") for sample in samples]
        deferred = [image for image in images if isinstance(image, tuple)]
        shapes = {image.shape for image, _ in deferred}
        if len(deferred) < len(samples) or len(shapes) > 1:
            made = [image[0].tensor(image[1]) if isinstance(image, tuple) else image for image in images]
            return _collated(samples, made)
        height, width, channels = shapes.pop()
        stacked = out.empty((len(samples), channels, height, width), torch.uint8)
        for (image, is_rgb), pixels in zip(deferred, stacked.numpy(), strict=True):
            image.write(pixels, is_rgb)
        # Everything else is collated by Ultralytics; an empty image preserves the order of keys in the batch.
        return _collated(samples, [torch.empty(0, dtype=torch.uint8)] * len(samples)) | {"img": stacked}


def _collated(samples: Sequence[Labels], images: Sequence[object]) -> Labels:
    """Return samples collated by Ultralytics, with other images."""
    given = [
        sample | {"img": image} if "img" in sample else sample
        for sample, image in zip(samples, images, strict=True)
    ]
    return _plain_collate(given)  # type: ignore[no-any-return]
