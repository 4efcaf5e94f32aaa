"""`fastload preview DATASET`: a sheet of samples as training gets them, with boxes, masks and keypoints."""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fastload.cli.output import note
from fastload.cli.parser import whole_number
from fastload.errors import OptionError

if TYPE_CHECKING:
    from fastload.datasets.preview import MapStyle

HELP = "draw samples of a dataset, after its transform, into a PNG"

EXIT_CODES = {
    "2": "nothing was done: an option or a path is invalid",
    "3": "data is damaged, or a server fails",
    "130": "interrupted (Ctrl-C)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "dataset",
        metavar="DATASET",
        help="a packed dataset or its URL, a folder with several (the first is drawn), a folder of class "
        "folders, or MODULE:NAME of a dataset or of a function that returns one",
    )
    transform_help = "the transform to apply, or a function that returns it (default: that of the dataset)"
    images_help = "the most samples (default: 40, or 12 with objects)"
    parser.add_argument("--transform", metavar="MODULE:NAME", help=transform_help)
    parser.add_argument("--out", metavar="FILE", default="preview.png", help="default: preview.png")
    parser.add_argument("--images", type=whole_number, metavar="N", help=images_help)
    parser.add_argument("--seed", type=int, default=0, help="seed of the transform's draws (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Write the sheet."""
    import torch

    from fastload.datasets.preview import require_png, write_sheet

    file = Path(options.out)
    require_png(file)
    transform = None if options.transform is None else _load_object(options.transform, "transform")
    dataset = _dataset(options.dataset)
    if transform is not None:
        if not hasattr(dataset, "transform"):
            raise OptionError(
                "--transform needs a dataset with an attribute `transform`, got "
                f"{type(dataset).__name__}: leave it out, and set the transform in Python"
            )
        dataset.transform = transform
    torch.manual_seed(options.seed)
    count = write_sheet(dataset, file, options.images)
    note(f"wrote {count} samples to {file}")
    return 0


def _dataset(name: str) -> MapStyle:
    from fastload.datasets.folder import FolderDataset
    from fastload.datasets.packed import PackedDataset
    from fastload.shards.manifest import looks_packed, packed_splits
    from fastload.shards.remote import is_url

    path = Path(name)
    if is_url(name):
        return PackedDataset(name)
    if path.is_dir():
        packed = [path] if looks_packed(path) else packed_splits(path)
        return PackedDataset(packed[0]) if packed else FolderDataset(path)
    if ":" not in name:
        lack = "is a file" if path.exists() else "does not exist"
        raise OptionError(f"{name}: {lack}: name a packed dataset, a folder, or MODULE:NAME of a dataset")
    return cast("MapStyle", _load_object(name, "dataset"))


def _load_object(name: str, kind: str) -> object:
    """Return an object of the user's code; classes and functions without arguments are called."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"{name}: must be MODULE:NAME of a {kind} that can be imported: {error}") from error
    is_function = hasattr(value, "__code__") and value.__code__.co_argcount == 0
    return value() if is_function or isinstance(value, type) else value
