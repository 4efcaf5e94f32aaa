"""Ultralytics through fastload: the same labels, and images that are equal or differ by interpolation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.batches import read
from tests.frameworks.ultralytics_patched import CASES

pytestmark = pytest.mark.frameworks("ultralytics")

# A resize in place of a warp samples within 1/32 of a pixel, and rounds weights to 11 bits; values that are
# close then differ more after a change of saturation: here by 16, and by 0.25 on average.
INTERPOLATED = {"resized": (24, 0.6)}

# Colours at half the resolution: about half of that was measured on these images, which have no grey.
HALF_COLOURS = {"in memory": (48, 5), "in memory, warped": (48, 5), "packed in memory": (48, 5)}


@pytest.fixture(scope="session")  # a module whose tests are stolen piecemeal would run it again and again
def found(run_programs, tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("yolo")
    run_programs(("ultralytics_patched", folder, folder / "found.json"))
    result: dict[str, Any] = read(folder / "found.json")
    return result


@pytest.mark.parametrize("case", CASES)
def test_labels_and_everything_but_pixels_are_ultralytics(found, case):
    assert found[case]["has same names"]
    assert found[case]["different"] == []


@pytest.mark.parametrize("case", CASES)
def test_pixels_are_ultralytics(found, case):
    most, mean = (INTERPOLATED | HALF_COLOURS).get(case, (0, 0.0))
    assert found[case]["most"] <= most
    assert found[case]["mean"] <= mean


def test_a_step_that_nobody_knows_is_left_to_ultralytics_and_said(found):
    assert any("Brighten may change pixels" in line for line in found["own step"]["said"])
    assert not found["warped"]["said"]


@pytest.mark.parametrize("case", ["in memory", "packed in memory"])
def test_images_in_memory_take_half_of_what_ultralytics_takes(found, case):
    assert 0.45 < found[case]["share of memory"] < 0.52  # odd sides are rounded up
    assert any("half the resolution" in line for line in found[case]["said"])


def test_copy_on_the_disk_is_read_instead_of_files_and_lies_elsewhere(found):
    assert found["on disk"]["hits"] >= 14, "the images are copied"
    assert any("uses a packed copy" in line for line in found["on disk"]["said"])
    assert any("the dataset is packed" in line for line in found["packed on disk"]["said"])
    assert not any(found[case]["files written"] for case in CASES)
