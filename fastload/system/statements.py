"""Statements of the user's code that run less often, or as something else, without an edit of the file."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from types import CodeType

from fastload.system.patching import patched

EVERY = 10
"""A statement that runs less often does so each tenth time."""

_IN_PLACE = ("mul_", "lerp_", "copy_", "add_")
_STATES = ("parameters", "named_parameters", "state_dict", "buffers", "named_buffers")


def is_average_loop(source: str) -> bool:
    """Return whether a source, `/home/me/train.py:41`, is in a loop that averages weights one by one."""
    file, _, line = source.rpartition(":")
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        tree = ast.parse(_source_of(file))
        return any(_spans(node, int(line)) and _averages(node) for node in ast.walk(tree))
    return False


def _source_of(file: str) -> bytes:
    with io.open_code(file) as source:
        return source.read()


def _averages(node: ast.AST) -> bool:
    """Return whether a loop over parameters changes them in place, but not by their gradients."""
    if not isinstance(node, ast.For) or _names(node.iter).isdisjoint(_STATES):
        return False
    inside = [each for statement in node.body for each in ast.walk(statement)]
    names = {each.attr for each in inside if isinstance(each, ast.Attribute)}
    scales = any(isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Mult) for each in inside)
    return "grad" not in names and (scales or not names.isdisjoint(_IN_PLACE))


def _names(node: ast.AST) -> set[str]:
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _spans(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


class _Rewriter(ast.NodeTransformer):
    def __init__(self, file: str, lines: Mapping[int, str]) -> None:
        self._file, self._lines = file, lines

    def _wanted(self, node: ast.AST, how: str) -> bool:
        return any(how == wanted and _spans(node, line) for line, wanted in self._lines.items())

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Run a call whose result is not used only now and then."""
        if not isinstance(node.value, ast.Call) or not self._wanted(node, "less often"):
            return node
        test = ast.parse(f"_fastload_is_due({self._file!r}, {node.lineno})", mode="eval").body
        return ast.If(test, [node], [])

    def visit_For(self, node: ast.For) -> ast.stmt:
        """Replace a loop that averages weights."""
        if _averages(node) and self._wanted(node, "average"):
            return ast.Expr(ast.parse("_fastload_average()", mode="eval").body)
        self.generic_visit(node)
        return node


def code_of(file: str, lines: Mapping[int, str]) -> CodeType:
    """Compile a file in which the statements at some lines run less often, or average weights at once."""
    tree = _Rewriter(file, lines).visit(ast.parse(_source_of(file)))
    return compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)


@contextlib.contextmanager
def rewritten(statements: Mapping[str, Mapping[int, str]], note: Callable[[], None]) -> Iterator[None]:
    """Import the files with their statements changed; `note` is called by each that runs less often."""
    original = SourceFileLoader.get_code
    counts: dict[tuple[str | int, ...], Iterator[int]] = {}

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        lines = statements.get(self.path)
        return code_of(self.path, lines) if lines else original(self, fullname)

    def is_due(*statement: str | int) -> bool:
        note()
        return next(counts.setdefault(statement, itertools.count())) % EVERY == 0

    with patched((SourceFileLoader, "get_code", get_code), (builtins, "_fastload_is_due", is_due)):
        yield


def averaging(average: Callable[[], None]) -> tuple[object, str, object]:
    """Return the replacement by which a changed loop calls `average`."""
    return builtins, "_fastload_average", average
