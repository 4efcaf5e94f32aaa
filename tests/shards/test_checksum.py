"""CRC-32C: the published value, and checksums of rows and files."""

import numpy as np
import pytest
from google_crc32c import value
from hypothesis import given
from hypothesis import strategies as st

from fastload.shards import checksum


def test_checksum_is_crc32c():
    assert checksum.record_crc32c([b"123456789"]) == 0xE3069283  # RFC 3720, appendix B.4's polynomial


@given(rows=st.lists(st.binary(max_size=20)))
def test_checksum_of_rows_is_that_of_their_concatenation(rows):
    assert checksum.record_crc32c(rows) == value(b"".join(rows))
    assert checksum.record_crc32c([np.frombuffer(row, np.uint8) for row in rows if row]) == value(
        b"".join(rows)
    )


@pytest.mark.parametrize(
    "size", [0, 1, checksum._BLOCK_BYTES - 1, checksum._BLOCK_BYTES, checksum._BLOCK_BYTES + 1]
)
def test_checksum_of_a_file_of_any_size(tmp_path, size):
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8).tobytes()
    (tmp_path / "file").write_bytes(data)
    assert checksum.file_crc32c(tmp_path / "file") == format(value(data), "08x")
