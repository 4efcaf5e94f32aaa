"""Writers of other programs' files, from their published layouts."""

import io
import pickle
import tarfile
from pathlib import Path

import h5py
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


def pickled(count: int = 4, protocol: int = 4) -> dict[bytes, bytes]:
    """Classification, as Efficient-PyTorch's newer folder2lmdb stores it."""
    keys = [b"%d" % number for number in range(count)]
    entries = {key: pickle.dumps((image(number), number % 3), protocol) for number, key in enumerate(keys)}
    return entries | {b"__keys__": pickle.dumps(keys, protocol), b"__len__": pickle.dumps(count, protocol)}


def stylegan2(count: int = 3) -> dict[bytes, bytes]:
    """Images in several sizes, as stylegan2-pytorch's prepare_data stores them."""
    entries = {b"length": b"%d" % count}
    for size in (8, 16, 32):
        for number in range(count):
            entries[f"{size}-{number:05d}".encode()] = image(number, ".png", size)
    return entries


def write_biggan(path: Path, count: int = 5) -> Path:
    """An HDF5 file, as BigGAN-PyTorch's make_hdf5 writes it."""
    images = np.stack([pixels(number, 8, 8).transpose(2, 0, 1) for number in range(count)])
    with h5py.File(path, "w") as file:
        file.create_dataset("imgs", data=images, dtype="uint8", chunks=(2, 3, 8, 8), maxshape=(None, 3, 8, 8))
        file.create_dataset("labels", data=np.arange(count) % 3, dtype="int64", chunks=(2,), maxshape=(None,))
    return path
