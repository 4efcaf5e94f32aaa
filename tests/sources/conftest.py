"""Fixtures for tests of sources: trees of files, and ImageFolder for comparison."""

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

MakeTree = Callable[[Iterable[str]], Path]


@pytest.fixture
def make_tree(tmp_path: Path) -> MakeTree:
    """Return `make_tree(paths)`: a folder of files, each holding its own path; `x/` is a folder."""

    def make(paths: Iterable[str]) -> Path:
        root = tmp_path / "photos"
        for path in paths:
            target = root / path
            if path.endswith("/"):
                target.mkdir(parents=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.encode("utf-8", "surrogateescape"))
        return root

    return make


@pytest.fixture(scope="session")
def image_folder() -> Any:
    """torchvision's ImageFolder."""
    return pytest.importorskip("torchvision.datasets").ImageFolder


@pytest.fixture(scope="session")
def png() -> bytes:
    """A small colour image as a PNG file."""
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((7, 5)).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def photos(make_tree: MakeTree, png: bytes) -> Path:
    """A folder of two classes with three photos."""
    root = make_tree(["cat/1.png", "cat/2.png", "dog/1.png"])
    for path in root.rglob("*.png"):
        path.write_bytes(png)
    return root
