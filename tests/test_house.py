"""The rules of the house: public names, what a wheel holds, where printing is done."""

import ast
import collections
import functools
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastload

ROOT = Path(fastload.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


@functools.cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), filename=str(module))


def named(module: Path) -> str:
    return module.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("name", fastload.__all__)
def test_every_public_name_resolves(name):
    assert getattr(fastload, name) is not None


def test_public_names_are_listed_by_dir():
    assert set(fastload.__all__) <= set(dir(fastload))


def test_no_public_name_is_listed_twice():
    assert len(fastload.__all__) == len(set(fastload.__all__))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        fastload.no_such_name  # noqa: B018


def nodes(module: Path, *kinds: type) -> list[tuple[str, ast.AST]]:
    """Return the syntax of some kinds in a module, each with its place."""
    found = [node for node in ast.walk(parsed(module)) if isinstance(node, kinds)]
    return [(f"{named(module)}:{getattr(node, 'lineno', 1)}", node) for node in found]


def test_export_lists_are_literal():
    for module in MODULES:
        for place, node in nodes(module, ast.Assign, ast.AnnAssign, ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                assert not isinstance(node, ast.AugAssign), f"{place}: __all__ is built piece by piece"
                assert all(isinstance(name, str) for name in ast.literal_eval(node.value)), place


def test_every_module_says_its_purpose():
    assert not [named(module) for module in MODULES if not ast.get_docstring(parsed(module))]


def test_only_the_command_line_prints():
    others = [module for module in MODULES if not module.is_relative_to(ROOT / "cli")]
    calls = [(place, node.func) for module in others for place, node in nodes(module, ast.Call)]
    assert not [place for place, call in calls if isinstance(call, ast.Name) and call.id == "print"]


def test_wheel_holds_the_version_every_module_and_the_type_marker(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name == f"fastload_vision-{fastload.__version__}-py3-none-any.whl"
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {module.relative_to(ROOT.parent).as_posix() for module in MODULES}
    assert wanted | {"fastload/py.typed"} <= held
    assert not [name for name in held if name.startswith("tests")]


# --- Size and names. ---------------------------------------------------------------------------------------

OUR_CODE = [
    path
    for folder in ("fastload", "tests", "benchmarks")
    for path in sorted((ROOT.parent / folder).rglob("*.py"))
]
# Docstrings and the lines of attributes name the thing or say what it does, rather than ask about it.
ODD_BEGINNINGS = re.compile(r"(What|Whether|That|Which|Who|How|As|Where|Says)\b|(Return|Yield)s? what\b")
ODD_ATTRIBUTES = re.compile(r"\s*(\w+:|#:) (What|Whether|That|Which|Who|How)\b")

# Names of types: CapWords, unlike constants and type variables.
TYPE_NAME = re.compile(r"[A-Z]\w*[a-z]\w*")


def test_the_architecture_is_one_line_of_folders():
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == {
        *("bench", "cli", "datasets", "doctor", "images", "loader"),
        *("packing", "shards", "sources", "system", "transforms", "ultralytics"),
    }


def test_no_module_has_a_name_that_follows_who_imports_it():
    assert {module.stem for module in MODULES if module.stem.startswith("_")} == {
        "__init__",
        "__main__",
        "_version",
    }


def test_no_module_is_longer_than_350_lines():
    lengths = {str(module): len(module.read_text(encoding="utf-8").splitlines()) for module in OUR_CODE}
    assert not {name: length for name, length in lengths.items() if length > 350}


def test_docstrings_begin_with_a_noun_or_a_verb():
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [found for module in MODULES for found in nodes(module, *kinds)]
    assert not [place for place, node in documented if ODD_BEGINNINGS.match(ast.get_docstring(node) or "")]


def test_descriptions_of_attributes_begin_with_a_noun_or_a_verb():
    found = []
    for path in OUR_CODE:
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [f"{path}:{at}" for at, line in enumerate(lines, 1) if ODD_ATTRIBUTES.match(line)]
    assert not found


def types_defined(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names of a module's classes and type aliases, also of those for type checkers alone."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                each.id for each in targets if isinstance(each, ast.Name) and TYPE_NAME.fullmatch(each.id)
            )
        elif isinstance(node, ast.If):
            yield from types_defined(node.body)


def test_the_name_of_a_type_has_one_meaning():
    """A private class is its module's own; any other name is one class or alias in the whole package."""
    found = collections.defaultdict(list)
    for module in MODULES:
        for name in set(types_defined(parsed(module).body)):
            if not name.startswith("_"):
                found[name].append(named(module))
    assert not {name: modules for name, modules in found.items() if len(modules) > 1}


# Dependencies whose own types are used.
TYPED = {"cv2", "numpy", "torch"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reads pyproject.toml, by tomllib")
def test_types_are_checked_alike_with_and_without_other_packages():
    import tomllib

    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    [skipped] = [each for each in settings["overrides"] if each.get("follow_imports") == "skip"]
    assert skipped["ignore_missing_imports"]
    assert skipped["follow_imports_for_stubs"]
    imported = set()
    for module in MODULES:
        for _, node in nodes(module, ast.Import, ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            imported |= {str(name).partition(".")[0] for name in names}
    assert {name.removesuffix(".*") for name in skipped["module"]} == (
        imported - TYPED - {"fastload", *sys.stdlib_module_names}
    )


def test_only_packages_that_every_run_has_are_skipped_without_the_marker():
    """Tests with the marker `frameworks` have a run that skips none; `importorskip` would do so in each."""
    optional = {"torchvision", "resource"}  # 'make test' installs the first; the second is Unix's
    for path in (ROOT.parent / "tests").rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
                package = ast.literal_eval(node.args[0]).partition(".")[0]
                assert package in optional, f"{path}:{node.lineno}: use the marker, @pytest.mark.frameworks"
