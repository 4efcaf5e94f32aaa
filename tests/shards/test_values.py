"""Values of fields: storing and reading back, and damage that a checksum cannot see."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fastload.errors import OptionError
from fastload.shards.manifest import Manifest
from fastload.shards.record import stored_rows, value_reader
from fastload.shards.schema import Field

POINTS = arrays.arrays("f8", st.tuples(st.integers(1, 5), st.just(2)), elements=st.floats(allow_nan=False))


def read_back(field, value):
    rows = stored_rows(field, value)
    assert len(rows) == len(field.columns())
    return value_reader(field).convert(*rows)


@given(st.lists(st.lists(POINTS, max_size=3), max_size=4))
def test_polygons_of_any_objects_are_read_back(value):
    found = read_back(Field.polygons(), value)
    assert [[each.tolist() for each in polygons] for polygons in found] == [
        [each.tolist() for each in polygons] for polygons in value
    ]


@given(st.lists(st.text()))
def test_texts_are_read_back(value):
    assert read_back(Field("captions", "texts"), value) == value


@given(arrays.arrays("f8", st.tuples(st.integers(0, 5), st.just(17), st.just(3)), elements=st.floats(-1, 1)))
def test_keypoints_are_read_back(value):
    assert np.array_equal(read_back(Field.keypoints((17, 3)), value), value)


@pytest.mark.parametrize("column", range(3))
def test_polygons_that_do_not_fit_together_are_refused(column):
    field = Field.polygons()
    rows = stored_rows(field, [[np.zeros((3, 2))], [np.zeros((4, 2)), np.zeros((3, 2))]])
    rows[column] = rows[column][: -16 if column == 0 else -4]
    with pytest.raises(ValueError, match="must"):
        value_reader(field).convert(*rows)


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": "boxes", "dtype": "float64", "shape": (4,)},
        {"kind": "boxes", "dtype": "float32", "shape": (4,), "format": "xyxy"},
        {"kind": "boxes", "dtype": "float64", "shape": (5,), "format": "xyxy"},
        {"kind": "keypoints", "dtype": "float64", "shape": (17, 4)},
        {"kind": "polygons", "dtype": "float64", "shape": (2,), "format": "xywh"},
        {"kind": "scalar", "dtype": "float64", "format": "mask"},
    ],
    ids=str,
)
def test_coordinates_of_another_shape_or_format_are_refused(arguments):
    with pytest.raises(OptionError, match="'x'"):
        Field("x", **arguments)


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ((), 2),
        ((Field.label(),), 2),
        ((Field.boxes("xyxy"),), 3),
        ((Field.mask(),), 3),
        ((Field.labels(),), 3),
    ],
    ids=["image", "label", "boxes", "mask", "labels"],
)
def test_a_manifest_has_the_lowest_version_that_knows_its_fields(fields, version):
    manifest = Manifest("hdf5", (Field("image", "image", encoding="keep"), *fields), (), (), {})
    assert b'"version": %d' % version in manifest.to_bytes()
    assert Manifest.from_bytes(manifest.to_bytes(), "x") == manifest
