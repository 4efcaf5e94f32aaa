"""The header of a store is checked before it is used."""

import os

import pytest

from fastload.datasets.cache.sharing import store_folder
from fastload.datasets.cache.store import Opening, Store


@pytest.mark.parametrize("size_bytes", [64, 4096, 1 << 20])
def test_file_that_is_no_store_is_not_used(size_bytes, tmp_path):
    opening = Opening("ram", "encoded", store_folder(tmp_path), "photos", "a" * 32, 200, 8, 4096)
    with open(tmp_path / "store", "w+b") as file:
        file.truncate(size_bytes)
        with pytest.raises(OSError, match="belongs to another dataset"):
            Store(os.dup(file.fileno()), opening)
