"""Replacement of the loaders and datasets of Ultralytics, at once or as soon as they are imported.

The loader of YOLOv5, in `utils.dataloaders` of its repository, becomes fastload's, and images are stacked in
the memory of the batch; its dataset is unchanged.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch

from fastload.contracts import BatchMemory
from fastload.errors import LibraryMissingError
from fastload.loader.dataloader import DataLoader
from fastload.system.patching import Replacement, patched
from fastload.ultralytics.collating import PatchedCollate

_patches = ExitStack()
_is_patched = False

# Files with the programs of the ranks of Ultralytics, written while it was patched.
_rank_programs: list[str] = []

# The module of YOLOv5 that makes loaders: in its repository, and in the package on PyPI.
_YOLOV5 = ("utils.dataloaders", "yolov5.utils.dataloaders")


def patch() -> AbstractContextManager[object]:
    """Make Ultralytics train through fastload, from now on and in the processes that it starts.

    Its trainers, datasets, transforms and settings stay as they are: the same random numbers are drawn, and
    the labels are its own. Images are warped and coloured in fewer steps, batches come through shared memory,
    and `cache="ram"` keeps one copy of half the size for all processes. See the page
    "Ultralytics (YOLO) through fastload" of the documentation. YOLOv5 gets the loader of fastload if its
    `utils.dataloaders` has been imported before.

    Returns:
        A context manager that undoes it at its end, as `unpatch` does.

    Raises:
        LibraryMissingError: Ultralytics is not installed.

    Example:
        >>> import fastload.ultralytics
        >>> fastload.ultralytics.patch()  # doctest: +SKIP
        >>> YOLO("yolo11n.yaml").train(data="coco8.yaml")  # doctest: +SKIP
    """
    global _is_patched
    if not _is_patched:
        modules = [sys.modules[name] for name in _YOLOV5 if name in sys.modules]
        replacements = [each for module in modules for each in _in_yolov5(module)]
        if importlib.util.find_spec("ultralytics") is not None:
            from fastload.ultralytics.deferred_samples import replacements as in_ultralytics

            replacements += in_ultralytics(_rank_programs, patch)
        if not replacements:
            raise LibraryMissingError(
                "fastload.ultralytics.patch() needs the package ultralytics, which is not installed: "
                "'pip install ultralytics'"
            )
        _patches.enter_context(patched(*replacements))
        _is_patched = True
    undoing = ExitStack()
    undoing.callback(unpatch)
    return undoing


def unpatch() -> None:
    """Undo `patch`; loaders and datasets made in the meantime do not change."""
    global _is_patched
    _is_patched = False
    _patches.close()


@contextmanager
def patched_on_import() -> Iterator[list[str]]:
    """Patch Ultralytics, and YOLOv5's loaders, once they are imported; yield the programs of its ranks."""

    def patch_yolov5(module: ModuleType) -> None:
        _patches.enter_context(patched(*_in_yolov5(module)))

    actions = {"ultralytics.data.build": lambda module: patch(), **dict.fromkeys(_YOLOV5, patch_yolov5)}
    finder = _Finder(actions)
    sys.meta_path.insert(0, finder)
    try:
        for name, do in actions.items():
            if name in sys.modules:
                do(sys.modules[name])
        yield _rank_programs
    finally:
        sys.meta_path.remove(finder)
        unpatch()


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that calls a function with a module that has been imported."""

    def __init__(self, actions: Mapping[str, Callable[[ModuleType], object]]) -> None:
        self._actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the other finders, with a loader that calls the function at its end."""
        if name not in self._actions:
            return None
        others = [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self._actions[name](module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


def _in_yolov5(module: ModuleType) -> list[Replacement]:
    """Return the replacements of attributes: (owner, name, value); none for another `utils.dataloaders`."""
    names = ("InfiniteDataLoader", "LoadImagesAndLabels", "create_dataloader")
    if not all(hasattr(module, name) for name in names):
        return []
    loader, plain_collate = module.InfiniteDataLoader, module.LoadImagesAndLabels.collate_fn
    plain_init, stacking = loader.__init__, StackedImages(plain_collate)

    @functools.wraps(plain_init)
    def init(self: object, *args: object, **options: object) -> None:
        if options.get("collate_fn") is plain_collate:
            options["collate_fn"] = stacking
        plain_init(self, *args, **options)

    found: list[Replacement] = [(loader, "__init__", init)]
    if not issubclass(loader, DataLoader):  # as it is below `fastload run`
        found += [(loader, "__bases__", (DataLoader,)), (module, "DataLoader", DataLoader)]
    return found


_Sample = tuple[torch.Tensor, object, object, object]  # image, labels, file and shapes


class StackedImages(PatchedCollate):
    """Collate function of YOLOv5, with the images stacked in the final memory of the batch."""

    changes = "its batches are stacked in shared memory by fastload.ultralytics"

    def __init__(self, plain: Callable[[Sequence[_Sample]], Sequence[object]]) -> None:
        self._plain = plain

    def __call__(self, samples: Sequence[_Sample]) -> Sequence[object]:
        """Return the batch in ordinary memory."""
        return self._plain(samples)

    def collate_into(self, samples: Sequence[_Sample], out: BatchMemory) -> Sequence[object]:
        """Return the batch, with the images in `out`."""
        images = [sample[0] for sample in samples]
        first = images[0]
        if any(each.shape != first.shape or each.dtype != first.dtype for each in images):
            return self._plain(samples)
        stacked = out.empty((len(images), *first.shape), first.dtype)
        torch.stack(images, 0, out=stacked)
        _, *others = self._plain([(first[:0], *sample[1:]) for sample in samples])
        return (stacked, *others)
