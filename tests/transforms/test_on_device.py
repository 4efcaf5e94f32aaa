"""Transforms of batches on a device give the same pixels as on the host; here the device is the CPU."""

import numpy as np
import pytest

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import drawn, to_array, to_tensor
from tests.transforms.test_transform import EVERY, FLOATS, SIZE, image_for


@pytest.mark.parametrize("name", [name for name, each in EVERY.items() if each.runs_on_device])
def test_a_batch_on_a_device_equals_its_images(name):
    transform = EVERY[name]
    images = np.stack([image_for(name, seed) for seed in range(7)])
    rows = drawn(transform, SIZE, 7)
    result = transform.on_device(to_tensor(images), rows)
    expected = transform.apply_batch(images.copy(), rows)
    # A multiplication and an addition may be fused on one side only.
    np.testing.assert_allclose(to_array(result), expected, rtol=0, atol=1e-6 if name in FLOATS else 0)


def test_a_subclass_that_changes_pixels_in_another_way_does_not_run_on_a_device():
    class Inverted(T.RandomCrop):
        def apply(self, image, parameters):
            return 255 - super().apply(image, parameters)

    class Larger(T.RandomCrop):
        def draw(self, draws, sizes):
            return super().draw(draws, sizes) + 1

    assert [kind(3).runs_on_device for kind in (T.RandomCrop, Inverted, Larger)] == [True, False, True]
    assert not T.RandomErasing(value="random").runs_on_device


def test_crops_of_several_sizes_are_refused_on_a_device():
    boxes = np.array([[0, 0, 5, 5], [0, 0, 5, 6]], np.float64)
    with pytest.raises(OptionError, match="must have one size"):
        T.RandomCrop(5).on_device(to_tensor(np.zeros((2, 9, 9, 3), np.uint8)), boxes)
