import os
import pickle
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.sources.files import NameTable

# Whatever the file system can hold, valid UTF-8 or not.
file_names = st.binary().map(os.fsdecode)


@given(st.lists(st.one_of(file_names, st.text(st.characters(exclude_categories=["Cs"])))))
def test_table_equals_the_list_it_was_made_from(names):
    table = NameTable(iter(names))
    assert list(table) == names
    assert len(table) == len(names)
    assert [table[-1 - at] for at in range(len(names))] == names[::-1]


def test_names_can_be_added_after_a_pickle():
    table = pickle.loads(pickle.dumps(NameTable(["a", "b"])))
    table.append("ç")
    assert list(table) == ["a", "b", "ç"]


def test_names_keep_the_bytes_that_the_file_system_has():
    assert bytes(NameTable(["a", os.fsdecode(b"\xff\xe9.jpg")]).data) == b"a\xff\xe9.jpg"


@pytest.mark.parametrize("index", [3, -4])
def test_index_outside_is_an_index_error(index):
    with pytest.raises(IndexError):
        NameTable(["a", "b", "c"])[index]


def test_a_hundred_thousand_names_take_little_memory():
    tracemalloc.start()
    try:
        table = NameTable(f"n0144{at % 1000:04d}/n0144{at:08d}.JPEG" for at in range(100_000))
        traced_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table[99_999] == "n01440999/n014400099999.JPEG"
    # 28 bytes of name, 8 of offset, and the reserve of growing buffers; a str alone takes 77.
    assert traced_bytes < 45 * len(table)
