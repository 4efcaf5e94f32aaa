"""Pictures that are small and quick."""

import pytest

from fastload.bench.pictures import make_files, read_pictures


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Four pictures of about 100 × 140 pixels, and what is said of them."""
    folder = tmp_path_factory.mktemp("made")
    make_files(folder, 4, 0.28)
    return read_pictures(folder, None)
