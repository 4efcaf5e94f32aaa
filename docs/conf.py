"""Sphinx's configuration of the documentation's site, which 'make docs' builds."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes

import fastload

project = "fastload"
copyright = "The fastload authors"
release = version = fastload.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

default_role = "code"  # docstrings have code in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 60

html_theme = "furo"
html_title = f"fastload {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["search.js"]
html_copy_source = False

copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
copybutton_prompt_text = "$ "


def _link_from_docs(app: Any, path: Path, parent: str, content: list[str]) -> None:
    """Make the links of an included file relative to this folder."""
    folder = Path(path).parent.as_posix()
    content[0] = re.sub(r"\]\((?!https?:|#)", f"]({folder}/", content[0])


_PICTURE = re.compile(r'<picture>\s*<source .*?srcset="(\S+)">\s*<img src="(\S+)" alt="(.*?)">\s*</picture>')
_IMAGES = """```{image} \\2
:alt: \\3
:class: only-light
```

```{image} \\1
:alt: \\3
:class: only-dark
```"""


def _follow_theme(app: Any, page: str, source: list[str]) -> None:
    """Replace pictures, which GitHub takes, by two images of which the site shows the one of its theme."""
    source[0] = _PICTURE.sub(_IMAGES, source[0])


_PAGE = re.compile(r'(the\s+page)\s+"([^"]+)"(?:\s+of\s+the\s+documentation)?', re.IGNORECASE)
_TITLES = {
    path.read_text("utf-8").split("\n", 1)[0][2:]: path.stem for path in Path(__file__).parent.glob("*.md")
}


def _link_pages(app: Any, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
    """Make links of the titles of pages that a docstring names."""

    def link(named: re.Match[str]) -> str:
        title = " ".join(named[2].split())
        return f"{named[1]} :doc:`{title} </{_TITLES[title]}>`"

    lines[:] = _PAGE.sub(link, "\n".join(lines)).split("\n")


_LONG_WORD = 32  # in characters; a screen of 400 pixels shows 40 in a line


def _mark_long(app: Any, doctree: nodes.document) -> None:
    """Give code whose words may be longer than a line a class."""
    for code in doctree.findall(nodes.literal):
        if any(len(word) > _LONG_WORD for word in code.astext().split()):
            code["classes"].append("long")


def setup(app: Any) -> None:
    """Connect the rewriting of included files, of pictures, of docstrings and of code."""
    app.connect("doctree-read", _mark_long)
    app.connect("include-read", _link_from_docs)
    app.connect("source-read", _follow_theme)
    app.connect("autodoc-process-docstring", _link_pages)
