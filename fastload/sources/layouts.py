"""The table of layouts: how each is called, recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastload.sources.coco import source as coco
from fastload.sources.coco.rows import CocoWriter
from fastload.sources.databases import source as databases
from fastload.sources.databases.writer import write_databases
from fastload.sources.huggingface import source as huggingface
from fastload.sources.huggingface.writer import write_arrow
from fastload.sources.listing import Listing
from fastload.sources.masks import source as masks
from fastload.sources.protocol import Claim
from fastload.sources.table.cells import TableWriter
from fastload.sources.voc import source as voc
from fastload.sources.voc.rows import VocWriter
from fastload.sources.webdataset import source as webdataset
from fastload.sources.webdataset.tar import write_tar
from fastload.sources.writing import LayoutWriter, StoredRecords
from fastload.sources.yolo import source as yolo
from fastload.sources.yolo.labels import YoloWriter


def _nothing(_: object) -> None:
    """Recognise nothing."""


@dataclass(frozen=True, slots=True)
class SourceLayout:
    """A layout, by the parts that it has.

    `name` is its name for `--layout` and the `kind` of its sources, up to a hyphen. A layout that
    `yields_to` others claims no folder that one of them claims, because they read its files, too. Records
    may lack a further file, such as a mask: `may_lack` names it. The annotation files of a layout that
    `states_no_sizes` are right for images of any size.
    Annotations are written image by image by a `writer`, files that hold many records by `write_files`, which
    returns their paths.
    """

    name: str
    title: str  # in messages, as in "a YOLO dataset"
    recognise: Callable[[Listing], Claim | None] = _nothing  # a folder
    recognise_file: Callable[[str], Claim | None] = _nothing  # a file of records, or of their description
    yields_to: tuple[str, ...] = ()
    may_lack: str = ""
    states_no_sizes: bool = False
    writer: type[LayoutWriter] | None = None
    write_files: Callable[[StoredRecords, Path], list[Path]] | None = None


CLASSES = SourceLayout("classes", "a folder of class folders or of images")
TABLE = SourceLayout("table", "a .csv or .tsv table", writer=TableWriter)

LAYOUTS = (
    CLASSES,  # what remains of folders
    TABLE,  # opened with the kinds of its columns
    SourceLayout("yolo", "a YOLO dataset", yolo.recognise, yolo.recognise_file, writer=YoloWriter),
    SourceLayout("coco", "a COCO dataset", coco.recognise, coco.recognise_file, writer=CocoWriter),
    SourceLayout("voc", "a Pascal VOC dataset", voc.recognise, writer=VocWriter),
    SourceLayout(
        "masks",
        "a segmentation dataset of images and masks",
        masks.recognise,
        yields_to=("yolo",),
        may_lack="a mask",
        writer=LayoutWriter,
    ),
    SourceLayout(
        "webdataset", "a WebDataset", webdataset.recognise, webdataset.recognise_file, write_files=write_tar
    ),
    SourceLayout(
        "huggingface",
        "a Hugging Face dataset",
        huggingface.recognise,
        huggingface.recognise_file,
        states_no_sizes=True,
        write_files=write_arrow,
    ),
    SourceLayout(
        "lmdb",
        "an LMDB database",
        databases.recognise,
        databases.recognise_lmdb_file,
        write_files=write_databases,
    ),
    SourceLayout(
        "hdf5", "an HDF5 file", recognise_file=databases.recognise_hdf5_file, write_files=write_databases
    ),
)
"""All layouts, in the order in which they are asked."""


def layout_of(kind: str) -> SourceLayout | None:
    """Return the layout of sources of a kind; None for images without one, and for Python's datasets."""
    return next((each for each in LAYOUTS if each.name == kind.partition("-")[0]), None)
