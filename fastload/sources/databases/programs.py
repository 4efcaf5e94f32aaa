"""Layouts of other programs' databases, as patterns of their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastload.shards.schema import Field


@dataclass(frozen=True, slots=True)
class DatabaseLayout:
    """Layout of the databases of a program. `sign` is an entry or file that only they have; "" for any.

    `keys` says where the keys of the images come from:

        lines      the lines of the file `sign` name them
        counted    `sign` holds the number of images, whose keys follow the pattern `image`
        listed     `sign` holds that number as a pickle, and `list` a pickle of the keys
        all        every key is that of an image
        rows       the images are the rows of the array `sign`
    """

    kind: str  # the container and the program's name
    sign: str
    keys: Literal["lines", "counted", "listed", "all", "rows"]
    field: Field
    image: str = ""  # the pattern of their keys; with "{size}", there are several sizes of each image
    value: str = ""  # the pattern of the keys of the field's values, or the array of them
    first: int = 0  # the number of the first image
    list: str = ""


_LABEL, _LINE, _TEXT = Field.label(), Field("line", "text", internal=True), Field("text", "text")

BASICSR = DatabaseLayout("lmdb-basicsr", "meta_info.txt", "lines", _LINE)  # also MMEngine
CRNN = DatabaseLayout(  # also CLOVA
    "lmdb-crnn", "num-samples", "counted", _TEXT, "image-{number:09d}", "label-{number:09d}", first=1
)
STYLEGAN2 = DatabaseLayout(
    "lmdb-stylegan2", "length", "counted", _LABEL, "{size}-{number:05d}"
)  # stylegan2-pytorch
PICKLED = DatabaseLayout("lmdb-pickled", "__len__", "listed", _LABEL, list="__keys__")  # Efficient-PyTorch
LSUN = DatabaseLayout("lmdb-lsun", "", "all", _LABEL)  # a database for each class and split
BIGGAN = DatabaseLayout("hdf5-biggan", "imgs", "rows", _LABEL, value="labels")  # pixels, channels first

DATABASES = {each.kind: each for each in (BASICSR, CRNN, STYLEGAN2, PICKLED, LSUN, BIGGAN)}
"""The layouts that are read and written, by the kind of their sources."""
