"""User functions that run with compiled versions of the transforms that they use."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator

from fastload.datasets.compiled.pipeline import CompiledTransform
from fastload.datasets.compiled.steps import Foreign


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


class _Reference:
    """Name by which a function refers to a transform; it may be bound to another one at any time."""

    def __init__(self, scope: _Scope, name: str) -> None:
        self.name = name
        self.compiled = CompiledTransform(scope.get(name))
        self._scope = scope

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        theirs = self._scope.get(self.name)
        is_replaced = isinstance(theirs, CompiledTransform)  # by another thread that runs the function
        if not is_replaced and not self.compiled.is_of(theirs):
            self.compiled = CompiledTransform(theirs)
        compiled = self.compiled
        if is_replaced or not compiled.is_useful:
            yield
            return
        self._scope[self.name] = compiled
        try:
            yield
        finally:
            if self._scope.get(self.name) is compiled:
                self._scope[self.name] = theirs


class _Closure(dict[str, types.CellType]):
    """The variables in a function's closure, by name."""

    def get(self, name: str) -> Foreign | None:  # type: ignore[override]
        try:
            return self[name].cell_contents  # type: ignore[no-any-return]
        except ValueError:  # it is not set yet
            return None

    def __setitem__(self, name: str, value: object) -> None:
        self[name].cell_contents = value


_Scope = _Closure | dict[str, Foreign | None]


def _references(function: object, seen: set[int]) -> Iterator[_Reference]:
    """Yield a function's references to transforms, and those of the functions of its module that it calls."""
    if id(function) in seen:
        return
    seen.add(id(function))
    called: list[object] = []
    scopes: list[tuple[_Scope, Iterable[str]]] = []
    if isinstance(function, functools.partial):
        scopes, called = [(function.keywords, function.keywords)], [function.func]
    elif isinstance(function, types.MethodType):
        attributes = getattr(function.__self__, "__dict__", {})
        scopes, called = [(attributes, attributes)], [function.__func__]
    elif isinstance(function, types.FunctionType):
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure, shared = _Closure(cells), function.__globals__
        scopes = [(shared, _names(function.__code__) & shared.keys()), (closure, closure)]
        inner: list[object] = [scope.get(name) for scope, names in scopes for name in names]
        functions = [each for each in inner if isinstance(each, types.FunctionType)]
        called = [each for each in functions if each.__globals__ is shared]
    elif not isinstance(function, type) and hasattr(function, "__dict__"):
        scopes, called = [(vars(function), vars(function))], [type(function).__call__]
    for scope, names in scopes:
        for name in names:
            theirs = scope.get(name)
            if callable(theirs) and not isinstance(theirs, CompiledTransform):
                reference = _Reference(scope, name)
                if reference.compiled.is_useful:
                    yield reference
    for each in called:
        yield from _references(each, seen)


def _names(code: types.CodeType) -> set[str]:
    """Return the names that code looks up, including those in its comprehensions and inner functions."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)
