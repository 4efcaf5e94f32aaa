"""Turns, differences of images, limits on threads."""

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from fastload.bench.decoding import _try_out, as_levels, difference, one_core, timed_turn
from fastload.bench.loading import take_turns
from fastload.bench.operations import MEAN, STD
from fastload.bench.results import Difference


def test_sides_take_turns_in_going_first():
    order = []

    def side(name):
        return lambda: order.append(name) or float(len(order))

    steps = []
    seconds = take_turns([side("a"), side("b"), side("c")], 3, lambda: steps.append(1))
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert seconds[0] == (1.0, 6.0, 8.0)
    assert len(steps) == 9


def test_turn_does_the_work_for_each_input_as_often_as_asked():
    seen = []
    assert timed_turn(seen.append, [1, 2], 3) > 0
    assert seen == [1, 2] * 3


def test_long_work_is_done_once():
    assert _try_out(lambda value: value + 1, [1, 2], 0.0) == ([2, 3], 1)


def test_short_work_is_repeated():
    assert _try_out(lambda value: value, [1], 1.0)[1] > 100


@pytest.mark.usefixtures("two_threads")
def test_threads_are_as_before_afterwards():
    before = cv2.getNumThreads(), torch.get_num_threads()
    with one_core():
        assert (cv2.getNumThreads(), torch.get_num_threads()) == (1, 1)
    assert (cv2.getNumThreads(), torch.get_num_threads()) == before


def test_every_kind_of_image_is_the_same_levels():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    unit = tensor / 255
    normalised = (unit - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    for image in (pixels, Image.fromarray(pixels), tensor, unit):
        np.testing.assert_allclose(as_levels(image), pixels, atol=1e-3)
    np.testing.assert_allclose(as_levels(normalised, True), pixels, atol=1e-3)
    np.testing.assert_allclose(as_levels(normalised.permute(1, 2, 0).numpy(), True), pixels, atol=1e-3)
    assert as_levels(pixels[:, :, 0]).shape == (5, 7, 1)


def test_difference_is_mean_and_maximum():
    first, second = np.zeros((2, 2, 1), np.uint8), np.zeros((2, 2, 1), np.uint8)
    second[0, 0] = 200
    assert difference([first], [second]) == Difference(50.0, 200.0)
    assert difference([first, first], [second, first]) == Difference(25.0, 200.0)


def test_images_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"gives images of \(2, 2, 3\), PIL of \(2, 3, 3\)"):
        difference([np.zeros((2, 2, 3), np.uint8)], [np.zeros((2, 3, 3), np.uint8)])


def test_likeness_is_equal_close_or_other():
    assert Difference(0.9, 2).likeness == "equal"
    assert Difference(0.9, 3).likeness == "close"
    assert Difference(1.1, 3).likeness == "other"
