"""Resizes to random sizes and RandomZoomOut, compared with torchvision's."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from tests.transforms.samples import assert_same_distribution, drawn, picture, to_array, to_tensor

v2 = pytest.importorskip("torchvision.transforms.v2")
F = v2.functional


RESIZES = {
    "RandomResize": {"min_size": 20, "max_size": 90},
    "RandomShortestSize": {"min_size": [20, 33, 50], "max_size": 70},
    "ScaleJitter": {"target_size": (40, 60), "scale_range": (0.2, 1.7)},
}


@pytest.mark.parametrize("name", RESIZES)
@pytest.mark.parametrize("size", [(37, 53), (53, 37), (1, 9), (300, 200)])
def test_random_sizes_match_torchvision(name, size):
    ours, theirs = (getattr(module, name)(**RESIZES[name]) for module in (T, v2))
    torch.manual_seed(0)
    image = torch.empty(3, *size)
    wanted = []
    for _ in range(1500):
        made = theirs.make_params([image])["size"]
        height, width = made if len(made) == 2 else F._geometry._compute_resized_output_size(size, made)
        wanted.append((max(1, height), max(1, width)))
    rows = drawn(ours, size, 4000)
    for column in (0, 1):
        assert_same_distribution(rows[:, column], np.array(wanted)[:, column])
    if name != "ScaleJitter":
        assert set(wanted) <= {tuple(row) for row in rows.tolist()}


def test_canvases_match_torchvision():
    torch.manual_seed(0)
    theirs = v2.RandomZoomOut(side_range=(1.0, 3.0), p=1.0)
    pads = np.array([theirs.make_params([torch.empty(3, 30, 50)])["padding"] for _ in range(2000)])
    ours = T.RandomZoomOut(9, (1.0, 3.0), 1.0)
    rows = drawn(ours, (30, 50), 4000)
    assert_same_distribution(-rows[:, 1], pads[:, 0])
    assert_same_distribution(rows[:, 2], 30 + pads[:, 1] + pads[:, 3])
    pixels = picture((30, 50))
    for row in rows[:10].tolist():
        left, top = -int(row[1]), -int(row[0])
        padding = [left, top, int(row[3]) - 50 - left, int(row[2]) - 30 - top]
        expected = to_array(F.pad(to_tensor(pixels), padding, 9))
        np.testing.assert_array_equal(ours.apply(pixels, row), expected)
