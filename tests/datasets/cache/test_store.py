"""The header of a store is checked before it is used."""

import os
import struct

import pytest

from fastload.datasets.cache.store import HEADER, Layout


@pytest.mark.parametrize(
    "damage",
    [("count", 10**6), ("count", 3000), ("capacity_bytes", 1 << 62), ("closed", 77), ("front", -1)],
)
def test_store_with_a_damaged_header_is_not_used(damage, tmp_path):
    name, value = damage
    with open(tmp_path / "store", "w+b") as file:
        Layout(20, 8, 4096).write(file.fileno(), bytes(16))
        assert Layout.read(file.fileno()) == Layout(20, 8, 4096)
        os.pwrite(file.fileno(), struct.pack("<q", value), HEADER.fields[name][1])
        with pytest.raises(OSError, match="header is damaged"):
            Layout.read(file.fileno())
