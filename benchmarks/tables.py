"""Write the tables and charts of benchmarks/results into the documents.

A Markdown file asks for a table with `<!-- benchmark: pack -->`; everything up to `<!-- end of benchmark -->`
is replaced. `<!-- benchmark: summary -->` is the README's table. `tables.py` rewrites README.md, its charts,
docs/ and benchmarks/README.md; `tables.py --check` changes nothing, lists what is out of date, and fails if
anything is.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from _cluster_chart import cluster_charts
from _harness import RESULTS, ROOT
from _markdown import markdown
from _readme import SUMMARIZED, charts, summary

_PATHS = " (PATH: your own data; without the option, some are made)"

_BLOCK = re.compile(r"(<!-- benchmark: (?P<name>[a-z_]+) -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    outdated = {
        path: text
        for path, text in up_to_date().items()
        if not path.exists() or path.read_text("utf-8") != text
    }
    for path, text in outdated.items():
        print(path.relative_to(ROOT))
        if not options.check:
            path.write_text(text, "utf-8")
    sys.exit(1 if options.check and outdated else 0)


def up_to_date() -> dict[Path, str]:
    """Return the text that each document and chart should have."""
    results = {path.stem: json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.json")}

    def table(block: re.Match[str]) -> str:
        name = block["name"]
        measured = SUMMARIZED if name == "summary" else (name,)
        if not results.keys() >= set(measured):
            return f"{block[1]}\nNot measured yet.\n\n{block[3]}"
        text = summary(results) if name == "summary" else markdown(results[name])
        commands = " and ".join(f"`{results[each]['command']}`" for each in measured)
        paths = _PATHS if "PATH" in commands else ""
        return f"{block[1]}\n{text}\nMeasured by {commands}{paths}.\n\n{block[3]}"

    folders = (ROOT, ROOT / "docs", ROOT / "benchmarks")
    documents = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    texts = {path: _BLOCK.sub(table, path.read_text("utf-8")) for path in documents}
    drawn = {"loading": charts(results), "cluster": cluster_charts(results["cluster"])}
    return texts | {
        RESULTS / f"{chart}-{name}.svg": svg for chart, svgs in drawn.items() for name, svg in svgs.items()
    }


if __name__ == "__main__":
    main()
