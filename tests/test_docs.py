"""Documentation: its code runs, its links exist, and it names every option and every public name."""

import argparse
import re
import shlex
from collections import defaultdict
from pathlib import Path

import cv2
import numpy as np
import pytest

import fastload
import fastload.transforms
import fastload.ultralytics
from fastload.cli.main import command_parser, main
from tests.folders import encoded, pixels
from tests.transforms.tolerances import as_markdown

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
# A block with its kind, or an indented line.
_PART = re.compile(r"^```([^\n]*)\n(.*?)^```|^    ([^\n]*)", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# A command, also after a prompt; not a form such as 'fastload pack SOURCE DEST'.
_COMMAND = re.compile(r"^ *(?:\$ )?(fastload (?!.*\b[A-Z]{4}).*)", re.MULTILINE)
# Those that are run; the others take long, because they measure or train, or need a cache of that name.
_RUN = ("cache list", "info", "pack", "preview", "unpack", "verify")
# Places that only other machines have.
_ELSEWHERE = re.compile(r"://| /shared/| --on ray")


@pytest.fixture
def with_datasets(tmp_path, monkeypatch):
    """A working folder with the datasets that the pages use."""
    rng = np.random.default_rng(0)
    for number in range(80):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        noise = rng.integers(0, 255, (40, 50, 3), np.uint8)
        assert cv2.imwrite(str(folder / f"{number:02d}.jpg"), noise)
    fastload.pack(tmp_path / "photos", tmp_path / "photos.fl", encode="keep", workers=1)
    fastload.pack(tmp_path / "photos", tmp_path / "photos-lmdb.fl", encode="keep", format="lmdb", workers=1)
    for name in ("images", "labels"):
        (tmp_path / "pets" / name).mkdir(parents=True)
    for number in range(8):
        (tmp_path / "pets" / "images" / f"{number}.jpg").write_bytes(encoded(pixels(number, 40, 50)))
        row = f"{number % 2} 0.5 0.5 0.4 0.6\n"
        (tmp_path / "pets" / "labels" / f"{number}.txt").write_text(row * (1 + number % 3))
    data = "train: images\nval: images\nnames: [cat, dog]\n"
    (tmp_path / "pets" / "data.yaml").write_text(data)
    (tmp_path / "coco8.yaml").write_text(f"path: pets\n{data}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_runs_after_the_ones_before(page, with_datasets):
    """Blocks marked `py` train for long: tests/frameworks runs the script in examples/ with their lines."""
    names = {"__name__": "page"}
    for number, (kind, code, line) in enumerate(_PART.findall(page.read_text())):
        if kind in ("python", "py"):
            program = compile(code, f"{page.name}, block {number}", "exec")
            if kind == "python":
                exec(program, names)
        for command in _COMMAND.findall(code if kind == "shell" else line):
            words = shlex.split(command, comments=True)[1:]
            if " ".join(words).startswith(_RUN) and not _ELSEWHERE.search(command):
                more = ["--overwrite"] if words[0] == "pack" else []
                assert main([*words, *more]) == 0, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_one(page):
    text = page.read_text()
    code = [*_FENCED.findall(text), *re.findall(r"^    .*", _FENCED.sub("", text), re.MULTILINE)]
    for command in _COMMAND.findall("\n".join(code)):
        command_parser().parse_args(shlex.split(command, comments=True)[1:])


def test_the_command_line_page_names_every_command_and_option():
    """In the command's own section."""
    page = (ROOT / "docs" / "cli.md").read_text()
    sections = dict(re.findall(r"^## fastload (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for words, command in commands_of(command_parser()):
        section = sections[words[0]]
        assert f"    fastload {' '.join(words)}" in section
        for action in command._actions:
            for option in action.option_strings:
                if option.startswith("--") and option not in ("--help", "--debug"):
                    assert f"`{option}" in section, f"docs/cli.md does not mention {words} {option}"


def commands_of(parser, *words):
    """Yield the words of each command with its parser, those of commands with further ones included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from commands_of(command, *words, name)
    if words:
        yield words, parser


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_the_pages_exists():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name} links to {target}, which is not there"
            if anchor:
                assert anchor in anchors(path), f"{page.name} links to {target}#{anchor}"


def test_both_spellings_find_the_pages_about_utilization():
    """The site's search takes "utilization" and "utilisation" for different words."""
    spelled = {
        word: {page.name for page in PAGES if word in page.read_text().lower()}
        for word in ("utilization", "utilisation")
    }
    assert {"README.md", "index.md", "doctor.md", "idle-gpu.md", "quickstart.md"} <= spelled["utilization"]
    assert spelled["utilization"] == spelled["utilisation"]


def test_every_page_is_in_the_sites_contents():
    contents = re.findall(r"```{toctree}\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)
    listed = {line for block in contents for line in block.splitlines() if line and line[0] != ":"}
    assert listed == {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}


def test_the_api_reference_has_every_public_name():
    documented, module = defaultdict(set), ""
    for kind, name in re.findall(
        r"^\.\. (\w+):: (\S+)", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE
    ):
        if kind == "currentmodule":
            module = name
        else:
            assert name not in documented[module], f"{name} is documented twice"
            documented[module].add(name)
    modules = (fastload, fastload.transforms, fastload.ultralytics)
    expected = {module.__name__: set(module.__all__) for module in modules}
    expected["fastload"] -= {"transforms", "ultralytics"}
    assert documented == expected


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


def test_pages_that_docstrings_name_exist():
    titles = {page.read_text(encoding="utf-8").split("\n", 1)[0][2:] for page in PAGES}
    for module in Path(fastload.__file__).parent.rglob("*.py"):
        text = " ".join(module.read_text(encoding="utf-8").split())
        assert {*re.findall(r'the page "([^"]+)"', text, re.IGNORECASE)} <= titles, module
