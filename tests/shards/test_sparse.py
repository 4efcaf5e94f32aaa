"""SparseFile against io.BytesIO."""

import io

from hypothesis import given
from hypothesis import strategies as st

from fastload.shards._sparse import SparseFile

PLACES = st.integers(0, 200_000) | st.sampled_from([65_535, 65_536, 65_537, 131_072])
WRITES = st.lists(st.tuples(PLACES, st.binary(max_size=9), st.integers(1, 9000)), max_size=12)


@given(writes=WRITES, size=PLACES)
def test_reads_return_what_was_written(writes, size):
    sparse, plain = SparseFile(), io.BytesIO()
    for place, data, times in writes:
        for file in (sparse, plain):
            file.seek(place)
            assert file.write(data * times) == len(data) * times
            assert file.tell() == place + len(data) * times
    for place, data, times in [*writes, (size, b"", 0)]:
        for file in (sparse, plain):
            file.seek(place)
        length = len(data) * times + 5
        assert sparse.read(length) == plain.read(length)
    if any(data for _, data, _ in writes):
        assert sparse.seek(0, io.SEEK_END) == plain.seek(0, io.SEEK_END)


@given(writes=WRITES, hole=st.tuples(PLACES, PLACES).map(sorted))
def test_written_ranges_are_the_file_without_its_hole(writes, hole):
    file = SparseFile()
    for place, data, times in writes:
        file.seek(place)
        file.write(data * times)
    file.seek(0)
    full = bytearray(file.read(file.size_bytes))
    rebuilt = bytearray(len(full))
    position = 0
    for offset, written in file.written_ranges(*hole):
        assert offset >= position
        position = offset + len(written)
        assert position <= hole[0] or offset >= hole[1]
        rebuilt[offset:position] = written
    full[hole[0] : hole[1]] = bytes(len(full[hole[0] : hole[1]]))
    assert rebuilt == full


def test_write_far_from_the_start_takes_one_page():
    file = SparseFile()
    file.seek(1 << 40)
    file.write(b"x")
    assert len(file._pages) == 1
    assert file.size_bytes == (1 << 40) + 1
