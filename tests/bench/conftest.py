"""Small images."""

import pytest

from fastload.bench.images import make_files, read_images


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Four images of ImageNet's most common sizes, and their summary."""
    folder = tmp_path_factory.mktemp("made")
    make_files(folder, 4)
    return read_images(folder, None)
