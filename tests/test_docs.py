"""Documentation: its Python runs, its links exist, and it names every option."""

import argparse
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

import fastload
from fastload.cli.main import command_parser
from tests.transforms.tolerances import as_markdown

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def with_datasets(tmp_path, monkeypatch):
    """A working folder with the datasets that the pages use."""
    rng = np.random.default_rng(0)
    for number in range(80):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (40, 50, 3), np.uint8)
        assert cv2.imwrite(str(folder / f"{number:02d}.jpg"), pixels)
    fastload.pack(tmp_path / "photos", tmp_path / "photos.fl", encode="keep", workers=1)
    fastload.pack(tmp_path / "photos", tmp_path / "photos-lmdb.fl", encode="keep", format="lmdb", workers=1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_of_a_page_runs_after_the_ones_before(page, with_datasets):
    names = {"__name__": "page"}
    for number, code in enumerate(_BLOCK.findall(page.read_text())):
        exec(compile(code, f"{page.name}, block {number}", "exec"), names)


def test_the_command_line_page_names_every_command_and_option():
    page = (ROOT / "docs" / "cli.md").read_text()
    commands = next(
        action for action in command_parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    for name, command in commands.choices.items():
        assert f"## fastload {name}" in page
        for action in command._actions:
            for option in action.option_strings:
                if option.startswith("--"):
                    assert f"`{option}" in page, f"docs/cli.md does not mention {name} {option}"


def test_every_link_between_the_pages_exists():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.skipif(cv2.__version__ < "5", reason="the table is that of OpenCV 5")
def test_the_page_of_transforms_states_the_tolerances_that_are_tested():
    assert as_markdown() in (ROOT / "docs" / "transforms.md").read_text()


def test_no_page_holds_a_placeholder():
    for page in PAGES:
        text = page.read_text()
        assert not re.search(r"\b(DEMO_[A-Z]+|TODO|TBD|FIXME)\b", text), page.name
        assert "Not measured yet" not in text, f"{page.name}: run benchmarks/tables.py"


TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_numbers_and_percentages_have_one_form(path):
    text = path.read_text()
    prose = re.sub(r"```.*?```|`[^`]*`|]\([^)]*\)", "", text, flags=re.DOTALL)
    assert not re.findall(r"[0-9] %", prose)  # 5%
    assert not re.findall(r"(?<![0-9.,])[0-9]{1,3}[ \u00a0\u202f][0-9]{3}(?![0-9])", prose)  # 65,500
    assert not re.findall(r"(?<![\w.,/#-])(?<!commit )(?<!build )[0-9]{5,}(?![\w-])", prose)
