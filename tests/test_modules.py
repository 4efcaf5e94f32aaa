"""The tests of a module are found from its name, by the rule and the table of tests/modules.py."""

import re

import pytest

from tests.modules import ELSEWHERE, ROOT, find_tests

MODULES = sorted(
    path.relative_to(ROOT / "fastload")
    for path in (ROOT / "fastload").rglob("*.py")
    if path.name != "__init__.py"
)


def test_every_module_has_tests():
    assert not [str(module) for module in MODULES if not find_tests(module)]


def test_every_test_of_a_room_is_that_of_a_module():
    found = {path for module in MODULES for path in find_tests(module)}
    # These are of several rooms together, with damaged files or other libraries.
    together = {"tests", "hostile", "frameworks"}
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name not in together]
    assert not [str(path.relative_to(ROOT)) for path in tests if path not in found]


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_every_entry_of_the_table_exists(pattern):
    assert list((ROOT / "tests").glob(pattern))
    places = [ROOT / "fastload" / place for place in ELSEWHERE[pattern].split()]
    assert all(place.is_dir() or place.with_suffix(".py").is_file() for place in places)


def test_the_files_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("### Where things are added")[1].split("\n\n")[2]
    named = re.findall(r"`([\w/]+(?:\.\w+|/))`", table)
    assert len(named) > 30
    paths = [name for name in named if "NAME" not in name]
    assert not [name for name in paths if not ((ROOT / "fastload" / name).exists() or (ROOT / name).exists())]


def test_a_module_is_found_by_its_name_its_folder_or_the_table():
    def names(module):
        return [path.name for path in find_tests(ROOT.joinpath(module).relative_to(ROOT))]

    assert names("images/jpegtran.py") == ["test_jpegtran.py"]
    assert names("sources/table/images.py") == ["test_table_images.py"]
    assert names("loader/replacing.py") == ["test_run.py", "test_run_summary.py"]
