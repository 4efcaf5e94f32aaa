"""Functions of the user, run with the transforms that they use compiled."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from fastload.datasets.compiled._pipeline import CompiledTransform


class CompiledFunction:
    """A function whose transforms are compiled: those in its closure, its globals and its arguments.

    While it runs, each of these names refers to the compiled transform; afterwards to the original again.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._places = list(_places(function, set()))

    @property
    def transforms(self) -> dict[str, CompiledTransform]:
        return {place.name: place.compiled for place in self._places}

    def __call__(self, *args: Any, **options: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for place in self._places:
                stack.enter_context(place.replaced())
            return self.function(*args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function,)

    def __repr__(self) -> str:
        return f"compiled({self.function!r})"


@dataclass(slots=True)
class _Place:
    """A name that refers to a transform, which may be set or changed at any time."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    compiled: CompiledTransform

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        theirs = self.read()
        is_replaced = isinstance(theirs, CompiledTransform)  # by another thread, which runs the function too
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


def _places(function: Any, seen: set[int]) -> Iterator[_Place]:
    """Yield the names of transforms in a function, and in the functions of its module that it calls."""
    if id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(function, functools.partial):
        yield from _in_mapping(function.keywords, list(function.keywords))
        yield from _places(function.func, seen)
    elif isinstance(function, types.MethodType):
        yield from _in_mapping(getattr(function.__self__, "__dict__", {}))
        yield from _places(function.__func__, seen)
    elif isinstance(function, types.FunctionType):
        names = [name for name in _names(function.__code__) if name in function.__globals__]
        yield from _in_mapping(function.__globals__, names)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        filled = {name: cell for name, cell in cells if _content(cell) is not None}
        for name, cell in filled.items():
            write = functools.partial(setattr, cell, "cell_contents")
            yield from _place(name, functools.partial(_content, cell), write)
        inner = [function.__globals__[name] for name in names] + list(map(_content, filled.values()))
        for each in inner:
            if isinstance(each, types.FunctionType) and each.__globals__ is function.__globals__:
                yield from _places(each, seen)
    elif not isinstance(function, type) and hasattr(function, "__dict__"):
        yield from _in_mapping(vars(function))
        yield from _places(type(function).__call__, seen)


def _in_mapping(mapping: MutableMapping[str, Any], names: list[str] | None = None) -> Iterator[_Place]:
    for name in list(mapping) if names is None else names:
        read, write = functools.partial(mapping.get, name), functools.partial(mapping.__setitem__, name)
        yield from _place(name, read, write)


def _place(name: str, read: Callable[[], Any], write: Callable[[Any], None]) -> Iterator[_Place]:
    theirs = read()
    if not callable(theirs) or isinstance(theirs, CompiledTransform):
        return
    compiled = CompiledTransform(theirs)
    if compiled.is_useful:
        yield _Place(name, read, write, compiled)


def _names(code: types.CodeType) -> set[str]:
    """Return the names that code looks up, including comprehensions and functions in it."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None
