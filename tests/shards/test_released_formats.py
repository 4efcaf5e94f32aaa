"""A shard written by any release stays readable by every later one."""

from pathlib import Path

import numpy as np
import pytest

import fastload

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_format_1_is_read_as_it_was_written(container):
    """Four gradients of 24x32, as JPEG of quality 90, in two classes; red says which one."""
    dataset = fastload.PackedDataset(DATA / f"format1-{container}.fl", verify="always")
    assert dataset.classes == ["class0", "class1"]
    assert dataset.targets == [0, 0, 1, 1]
    keys = [dataset.read(index).key for index in range(4)]
    assert keys == ["class0/0.png", "class0/2.png", "class1/1.png", "class1/3.png"]
    rows, columns = np.mgrid[:24, :32]
    for index, key in enumerate(keys):
        red, green, blue = dataset[index][0].numpy().astype(int)
        assert abs(red - int(key[7]) * 60).mean() < 3
        assert abs(green - rows * 10).mean() < 3
        assert abs(blue - columns * 8).mean() < 3
    assert fastload.verify(DATA / f"format1-{container}.fl") is not None
