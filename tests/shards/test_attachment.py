"""The attachment of annotation files: given back as stored, or refused before any of them is."""

import pytest

from fastload.errors import DamageError
from fastload.shards.attachment import ATTACHMENT_NAME, read_attachment, write_attachment

FILES = [(f"labels/{number}.txt", bytes([number]) * 1000 * number) for number in range(20)]


@pytest.fixture
def attachment(tmp_path):
    return write_attachment(tmp_path / ATTACHMENT_NAME, FILES, ("train",))


def test_files_come_back_as_stored(tmp_path, attachment):
    assert attachment.files == 20
    assert [*read_attachment(tmp_path, attachment)] == FILES


def test_no_file_of_a_damaged_attachment_is_given(tmp_path, attachment):
    path = tmp_path / ATTACHMENT_NAME
    intact = path.read_bytes()
    for at in range(10, len(intact), 29):  # the first bytes are gzip's header
        path.write_bytes(intact[:at] + bytes([intact[at] ^ 4]) + intact[at + 1 :])
        with pytest.raises(DamageError, match="cannot be read"):
            next(read_attachment(tmp_path, attachment))


def test_a_truncated_attachment_is_refused(tmp_path, attachment):
    path = tmp_path / ATTACHMENT_NAME
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DamageError, match="cannot be read"):
        next(read_attachment(tmp_path, attachment))
