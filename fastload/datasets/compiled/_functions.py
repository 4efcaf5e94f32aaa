"""User functions that run with compiled versions of the transforms that they use."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from fastload.datasets.compiled._pipeline import CompiledTransform


class CompiledFunction:
    """A function with compiled versions of the transforms in its closure, globals and bound arguments.

    The name of each refers to the compiled transform while the function runs, then to the original again.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self._references = list(_references(function, set()))

    @property
    def transforms(self) -> dict[str, CompiledTransform]:
        return {reference.name: reference.compiled for reference in self._references}

    def __call__(self, *args: object, **options: object) -> object:
        with contextlib.ExitStack() as stack:
            for reference in self._references:
                stack.enter_context(reference.replaced())
            return self.function(*args, **options)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.function,)

    def __repr__(self) -> str:
        return f"compiled({self.function!r})"


@dataclass(slots=True)
class _Reference:
    """Name by which a function refers to a transform; it may be bound to another one at any time."""

    name: str
    read: Callable[[], object]
    write: Callable[[object], None]
    compiled: CompiledTransform

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        theirs = self.read()
        is_replaced = isinstance(theirs, CompiledTransform)  # by another thread that runs the function
        if not is_replaced and not self.compiled.is_of(theirs):
            self.compiled = CompiledTransform(theirs)
        compiled = self.compiled
        if is_replaced or not compiled.is_useful:
            yield
            return
        self.write(compiled)
        try:
            yield
        finally:
            if self.read() is compiled:
                self.write(theirs)


def _references(function: object, seen: set[int]) -> Iterator[_Reference]:
    """Yield a function's references to transforms, and those of the functions of its module that it calls."""
    if id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(function, functools.partial):
        yield from _in_mapping(function.keywords)
        yield from _references(function.func, seen)
    elif isinstance(function, types.MethodType):
        yield from _in_mapping(getattr(function.__self__, "__dict__", {}))
        yield from _references(function.__func__, seen)
    elif isinstance(function, types.FunctionType):
        names = [name for name in _names(function.__code__) if name in function.__globals__]
        yield from _in_mapping(function.__globals__, names)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        filled = {name: cell for name, cell in cells if _content(cell) is not None}
        for name, cell in filled.items():
            write = functools.partial(setattr, cell, "cell_contents")
            yield from _reference(name, functools.partial(_content, cell), write)
        inner = [function.__globals__[name] for name in names] + list(map(_content, filled.values()))
        for each in inner:
            if isinstance(each, types.FunctionType) and each.__globals__ is function.__globals__:
                yield from _references(each, seen)
    elif not isinstance(function, type) and hasattr(function, "__dict__"):
        yield from _in_mapping(vars(function))
        yield from _references(type(function).__call__, seen)


def _in_mapping(mapping: MutableMapping[str, Any], names: list[str] | None = None) -> Iterator[_Reference]:
    for name in list(mapping) if names is None else names:
        read, write = functools.partial(mapping.get, name), functools.partial(mapping.__setitem__, name)
        yield from _reference(name, read, write)


def _reference(
    name: str, read: Callable[[], object], write: Callable[[object], None]
) -> Iterator[_Reference]:
    theirs = read()
    if not callable(theirs) or isinstance(theirs, CompiledTransform):
        return
    compiled = CompiledTransform(theirs)
    if compiled.is_useful:
        yield _Reference(name, read, write, compiled)


def _names(code: types.CodeType) -> set[str]:
    """Return the names that code looks up, including those in its comprehensions and inner functions."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not set yet
        return None
