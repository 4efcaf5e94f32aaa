"""References of a user's code to transforms and datasets, which may stand for compiled ones for a while."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

import PIL
import PIL.Image
import torch.utils.data

from fastload.datasets.compiled.stand_in import StandIn

_MOST_NAMES = 4  # of attributes by which user code refers to a transform, one in the other
_MOST_PARTS = 32  # of a list or dict that is searched
_MOST_SEARCHED = 64  # names in a scope, after each batch
_LIBRARIES = frozenset({*sys.stdlib_module_names, "numpy", "torch", "cv2", "PIL", "fastload", "timm"})


_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))  # of a module; other names may be those of attributes

Scope = dict[Any, Any] | list[Any]
Compile = Callable[[object], object | None]
"""Returns a compiled transform; None for any other object."""
Renew = Callable[[object, object], object]
"""Returns the compiled transform, given the present one and what the name refers to now."""


class Reference:
    """Name by which code refers to a transform or a dataset; it may be bound to another one at any time.

    Attributes:
        name: The name, with those of the objects that hold it.
        scope: Where it is defined.
        theirs: The user's object that it refers to.
        compiled: Object that it refers to while the code runs.
    """

    def __init__(
        self, name: str, scope: Scope, key: Any, compiled: object, renew: Renew | None = None
    ) -> None:
        self.name = name
        self.scope = scope
        self.compiled = compiled
        self.theirs = scope[key]
        self._key = key
        self._renew = renew

    @property
    def is_idle(self) -> bool:
        """True if the compiled object makes nothing faster."""
        return isinstance(self.compiled, StandIn) and self.compiled.is_idle

    def replace(self) -> None:
        """Let the name refer to the compiled object."""
        try:
            theirs = self.scope[self._key]
        except (LookupError, ValueError):  # it was deleted, or is not set yet
            return
        # It may be replaced already, by code that runs around this one.
        if self._renew is not None and theirs is not self.compiled and callable(theirs):
            self.theirs, self.compiled = theirs, self._renew(self.compiled, theirs)
        if theirs is self.theirs and not self.is_idle:
            self.scope[self._key] = self.compiled

    def restore(self) -> None:
        """Let the name refer to the user's object again."""
        with contextlib.suppress(LookupError, ValueError):
            if self.scope[self._key] is self.compiled:
                self.scope[self._key] = self.theirs


def restore(scope: Scope, replaced: Mapping[int, object]) -> None:
    """Let all names of a scope refer to the user's objects again, given by the ids of their compiled ones.

    The code may have assigned a compiled object to another name, or have reordered a list. Larger scopes,
    such as a cache that has grown, are not searched.
    """
    if len(scope) > _MOST_SEARCHED:
        return
    for key, value in list(scope.items() if isinstance(scope, dict) else enumerate(scope)):
        if id(value) in replaced:
            scope[key] = replaced[id(value)]


class _Closure(dict[str, types.CellType]):
    """The variables in a function's closure, by name."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name).cell_contents

    def __setitem__(self, name: str, value: object) -> None:
        super().__getitem__(name).cell_contents = value

    def items(self) -> Any:
        """Yield the names of variables that have a value, and the values."""
        for name in self:
            with contextlib.suppress(ValueError):
                yield name, self[name]


class Search:
    """Search of a user's code for the transforms and datasets that it refers to.

    Attributes:
        references: The names that refer to transforms.
        scopes: Where the code may define names that refer to them.
        datasets: The names that refer to datasets: their scope, and their key there.
        opens_images: True if the code opens image files with PIL.
        calls_torchvision: True if it calls torchvision's transforms or their functions itself.
    """

    def __init__(self, compile_value: Compile, renew: Renew) -> None:
        self.references: list[Reference] = []
        self.scopes: dict[int, Scope] = {}  # by their ids
        self.datasets: list[tuple[str, Scope, Any]] = []
        self.opens_images = self.calls_torchvision = False
        self._compile_value = compile_value
        self._renew = renew
        self._seen: set[int] = set()
        self._compiled: dict[int, object | None] = {}  # by the id of the original

    def search(self, name: str, held: object) -> None:
        """Search an object that `name` refers to."""
        if id(held) in self._seen or name.count(".") >= _MOST_NAMES:
            return
        self._seen.add(id(held))
        if isinstance(held, functools.partial):
            self._search_scope(name, held.keywords)
            self.search(name, held.func)
        elif isinstance(held, types.MethodType):
            self.search(name, held.__self__)
            self.search(name, held.__func__)
        elif isinstance(held, types.FunctionType):
            self._search_function(held, None)
        elif isinstance(held, (list, dict)):
            if len(held) <= _MOST_PARTS:
                self._search_scope(name, held)
        elif isinstance(attributes := getattr(held, "__dict__", None), dict) and not _is_library(type(held)):
            self._search_scope(name, attributes)
            for method in ("__call__", "forward", "__getitem__", "__getitems__"):
                function = getattr(type(held), method, None)
                if isinstance(function, types.FunctionType):
                    self._search_function(function, type(held))

    def _search_scope(self, name: str, scope: Scope, keys: Iterable[Any] | None = None) -> None:
        found = list(scope if isinstance(scope, dict) else range(len(scope))) if keys is None else keys
        for key in found:
            with contextlib.suppress(LookupError, ValueError):  # a variable has no value yet
                self._add(f"{name}.{key}" if name else str(key), scope, key)
        if keys is None or any(each.scope is scope for each in self.references):
            self.scopes[id(scope)] = scope

    def _add(self, name: str, scope: Scope, key: Any) -> None:
        value = scope[key]
        if isinstance(value, (list, dict)):
            self.search(name, value)
        elif isinstance(value, torch.utils.data.Dataset):
            self.datasets.append((name, scope, key))
        elif callable(value) and not isinstance(value, type) and not issubclass(type(value), StandIn):
            if id(value) not in self._compiled:
                self._compiled[id(value)] = self._compile_value(value)
            compiled = self._compiled[id(value)]
            if compiled is None:
                self.search(name, value)
            else:
                self.references.append(Reference(name, scope, key, compiled, self._renew))

    def _search_function(self, function: types.FunctionType, kind: type | None) -> None:
        if _is_library(function):
            return
        names, shared = _names(function.__code__), function.__globals__
        found = {name: shared[name] for name in sorted(_names(function.__code__, _GLOBAL) & shared.keys())}
        # Modules that are imported in the function itself are among its names.
        is_pil = any(each is PIL or each is PIL.Image for each in found.values())
        is_pil |= not names.isdisjoint(("PIL", "PIL.Image"))
        self.opens_images |= is_pil and "open" in names
        modules = [
            str(getattr(each, "__module__", None) or getattr(each, "__name__", "")) for each in found.values()
        ]
        self.calls_torchvision |= any(
            name.startswith("torchvision.transforms") for name in (*names, *modules)
        )
        # Functions of other modules are not searched: it could be any number of them.
        inner = [
            name
            for name, each in found.items()
            if not isinstance(each, types.FunctionType) or each.__globals__ is shared
        ]
        self._search_scope("", shared, inner)
        closure = _Closure(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._search_scope("", closure, list(closure))
        for name in sorted(names) if kind is not None else ():
            method = inspect.getattr_static(kind, name, None)
            if isinstance(method, types.FunctionType) and id(method) not in self._seen:
                self._seen.add(id(method))
                self._search_function(method, kind)


def _is_library(definition: Any) -> bool:
    """Return True for a class or function of a library, which refers to no transforms of the user's."""
    module = definition.__module__ or ""
    return module.partition(".")[0] in _LIBRARIES or module.startswith("torchvision.transforms")


def _names(code: types.CodeType, kinds: Set[str] | None = None) -> set[str]:
    """Return the names that code looks up, including those in its comprehensions and inner functions.

    With `kinds`, only those that instructions of these kinds look up.
    """
    inner = [_names(each, kinds) for each in code.co_consts if isinstance(each, types.CodeType)]
    if kinds is None:
        return set(code.co_names).union(*inner)
    return {each.argval for each in dis.get_instructions(code) if each.opname in kinds}.union(*inner)
