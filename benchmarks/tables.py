"""Puts the tables of benchmarks/results into the Markdown files that ask for them.

A file asks with `<!-- benchmark: pack -->`; what stands between that and `<!-- end of benchmark -->`
is replaced. `tables.py` rewrites README.md, docs/ and benchmarks/README.md; `tables.py --check` only
says which of them are out of date, and fails if one is.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from _harness import RESULTS, ROOT
from _markdown import markdown

_BLOCK = re.compile(r"(<!-- benchmark: (?P<name>[a-z_]+) -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    outdated = [path for path in _documents() if path.read_text("utf-8") != filled(path)]
    for path in outdated:
        print(path.relative_to(ROOT))
        if not options.check:
            path.write_text(filled(path), "utf-8")
    sys.exit(1 if options.check and outdated else 0)


def filled(path: Path) -> str:
    """A document's text with the tables as results have them."""
    return _BLOCK.sub(
        lambda block: f"{block[1]}\n{_tables(block['name'])}\n{block[3]}", path.read_text("utf-8")
    )


def _documents() -> list[Path]:
    folders = (ROOT, ROOT / "docs", ROOT / "benchmarks")
    return [path for folder in folders for path in sorted(folder.glob("*.md"))]


def _tables(name: str) -> str:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        [program] = (ROOT / "benchmarks").glob(f"*_{name}.py")
        return f"Not measured yet: `python benchmarks/{program.name}`.\n"
    return markdown(json.loads(path.read_text("utf-8")))


if __name__ == "__main__":
    main()
