"""Fields: validation, columns and JSON."""

import pickle

import pytest

from fastload.errors import FormatError, OptionError
from fastload.shards.schema import Field, record_columns
from tests.shards.contents import EVERY_FIELD


@pytest.mark.parametrize("field", EVERY_FIELD, ids=lambda field: field.name)
def test_field_round_trips_through_json_and_pickle(field):
    assert Field.from_json(field.to_json()) == field
    assert pickle.loads(pickle.dumps(field)) == field


@pytest.mark.parametrize(
    "name", ["", "1a", "a-b", "a/b", "a b", "é", "key", "crc32c", "records", "x" * 65, "a\n"]
)
def test_name_that_cannot_be_stored_is_refused(name):
    with pytest.raises(OptionError, match="name"):
        Field(name, "text")


@pytest.mark.parametrize(
    "arguments",
    [
        ("x", "number"),
        ("x", "scalar", "complex64"),
        ("x", "scalar", "object"),
        ("x", "scalar", "U5"),
        ("x", "vector", "int8"),
        ("x", "vector", "int8", (-1,)),
        ("x", "ragged", "int8", (3, 0)),
        ("x", "scalar", "int8", (3,)),
        ("x", "text", "uint8", (3,)),
        ("x", "image"),
        ("x", "image", None, (), "webp"),
    ],
)
def test_field_that_cannot_be_stored_is_refused(arguments):
    with pytest.raises(OptionError, match="'x'"):
        Field(*arguments)


@pytest.mark.parametrize("entry", [{}, {"name": "x"}, {"name": "x", "kind": "vector", "dtype": "int8"}])
def test_malformed_json_is_refused(entry):
    with pytest.raises(FormatError):
        Field.from_json(entry)


def test_column_names_are_unique():
    names = [column.name for column in record_columns(EVERY_FIELD)]
    assert names[0] == "key"
    assert len(names) == len(set(names))


def test_columns_are_stored_little_endian():
    for column in record_columns(EVERY_FIELD):
        assert column.numpy_dtype == column.numpy_dtype.newbyteorder("<")


@pytest.mark.parametrize("kind", ["text", "bytes", "texts"])
def test_text_and_bytes_are_stored_as_bytes_with_any_dtype(kind):
    assert Field("x", kind, "int64").columns() == Field("x", kind).columns()
