"""Features that need a GPU are said to be untried until a run on one is recorded, and no longer."""

import json
import re
from pathlib import Path

import pytest
import torch

from tests.commands import run_python

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
RECORD = ROOT / "benchmarks" / "results" / "gpu.json"
PROGRAM = ROOT / "benchmarks" / "check_gpu.py"

UNTRIED = "not yet run on a GPU"
NEEDS_ONE = re.compile(r'device="cuda"|cache="device"|^\| `"device"`|of a GPU: a utilisation', re.MULTILINE)

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="needs benchmarks/, of a checkout")


def passages(page: Path) -> list[str]:
    """The paragraphs, items of lists and rows of tables outside of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.split(r"\n\s*\n|\n(?=- |\| )", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_no_gpu_has_run_is_said_so_until_one_has(page):
    for passage in passages(page):
        is_said = UNTRIED in " ".join(passage.split())
        if RECORD.exists():
            assert not is_said, f"{RECORD.name} is the record of a run: take {UNTRIED!r} out of {page.name}"
        elif NEEDS_ONE.search(passage):
            assert is_said, f"{page.name} must say {UNTRIED!r} beside: {passage.strip()}"


def test_all_that_needs_a_gpu_is_spoken_of():
    found = {match[0] for page in PAGES for match in NEEDS_ONE.finditer(page.read_text(encoding="utf-8"))}
    assert found == {'device="cuda"', 'cache="device"', '| `"device"`', "of a GPU: a utilisation"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_without_a_gpu_nothing_is_recorded(tmp_path):
    done = run_python(PROGRAM, "--out", tmp_path)
    assert done.returncode == 1
    assert "there is no CUDA device here" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not RECORD.exists(), reason="no run on a GPU is recorded")
def test_the_record_is_of_a_whole_run():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["gpu"]["name"]
    assert record["gpu"]["driver"]
    assert record["tests"]["passed"]
    assert not record["tests"]["failed"] + record["tests"]["skipped"]
    assert all(each["images_per_s"] > 0 for each in record["measured"])
