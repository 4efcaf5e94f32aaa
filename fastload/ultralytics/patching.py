"""Replacement of the loaders and datasets of Ultralytics, at once or as soon as they are imported."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

from fastload.errors import LibraryMissingError
from fastload.system.patching import Replacement, patched

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
        replacements = [*_in_ultralytics(), *(each for module in modules for each in _in_yolov5(module))]
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
        for name, do in finder.actions.items():
            if name in sys.modules:
                do(sys.modules[name])
        yield _rank_programs
    finally:
        sys.meta_path.remove(finder)
        unpatch()


def _in_ultralytics() -> list[Replacement]:
    if importlib.util.find_spec("ultralytics") is None:
        return []
    from fastload.ultralytics._deferred_samples import replacements

    return replacements(_rank_programs, patch)


def _in_yolov5(module: ModuleType) -> list[Replacement]:
    from fastload.ultralytics._yolov5 import replacements

    return replacements(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that calls a function with a module that has been imported."""

    def __init__(self, actions: Mapping[str, Callable[[ModuleType], object]]) -> None:
        self.actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the other finders, with a loader that calls the function at its end."""
        action = self.actions.get(name)
        if action is None:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (each.find_spec(name, path, target) for each in others if hasattr(each, "find_spec"))
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                action(module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
