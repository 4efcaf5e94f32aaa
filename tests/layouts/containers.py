"""Writers of other programs' files, from their published layouts."""

import io
import tarfile
from pathlib import Path

import lmdb
import numpy as np

from tests.folders import encoded, pixels


def image(seed: int, suffix: str = ".jpg", size: int = 16) -> bytes:
    """A small image file."""
    return encoded(pixels(seed, size, size + 4), suffix)


def npy(array: np.ndarray) -> bytes:
    """An array as a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    """A tar file of members in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def write_lmdb(path: Path, entries: dict[bytes, bytes]) -> Path:
    """An LMDB database: a folder."""
    path.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(path), map_size=1 << 24) as opened, opened.begin(write=True) as transaction:
        for key, value in entries.items():
            transaction.put(key, value)
    return path


def read_lmdb(path: Path) -> dict[bytes, bytes]:
    """All entries of a database."""
    with (
        lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False) as opened,
        opened.begin() as found,
    ):
        return {bytes(key): bytes(value) for key, value in found.cursor()}


def crnn(count: int = 4) -> dict[bytes, bytes]:
    """Text recognition, as CRNN and CLOVA store it."""
    entries = {b"num-samples": b"%d" % count}
    for number in range(1, count + 1):
        entries[b"image-%09d" % number] = image(number)
        entries[b"label-%09d" % number] = f"wörd {number}".encode()
    return entries


def stylegan2(count: int = 3) -> dict[bytes, bytes]:
    """Images in several sizes, as stylegan2-pytorch's prepare_data stores them."""
    entries = {b"length": b"%d" % count}
    for size in (8, 16, 32):
        for number in range(count):
            entries[f"{size}-{number:05d}".encode()] = image(number, ".png", size)
    return entries
