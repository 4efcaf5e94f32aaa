"""Mapped files: read-only, without a descriptor, and unmapped with the last view."""

import gc
import os
import sys

import numpy as np
import pytest

from fastload.system.mapping import map_file


def mappings(path):
    with open("/proc/self/maps") as file:
        return sum(str(path) in line for line in file)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_file_is_mapped_as_long_as_a_view_of_it_is_in_use(tmp_path):
    path = tmp_path / "file"
    data = np.random.default_rng(0).integers(0, 255, 100_000, np.uint8)
    path.write_bytes(data.tobytes())
    descriptors = os.listdir("/proc/self/fd")
    view = np.frombuffer(map_file(path), np.uint8, 50_000, 1000)[::7]
    assert os.listdir("/proc/self/fd") == descriptors
    gc.collect()
    assert mappings(path) == 1
    assert (view == data[1000:51_000][::7]).all()
    assert not view.flags.writeable
    del view
    gc.collect()
    assert mappings(path) == 0


def test_a_file_that_cannot_be_mapped_is_an_error_of_the_system(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises((OSError, ValueError)):
        map_file(tmp_path / "empty")
