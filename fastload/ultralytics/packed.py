"""Packed datasets as the data of Ultralytics: `train(data="photos.fl")`.

Its datasets list files. A record is listed as the path of its key below the packed dataset, and is read where
Ultralytics would read that file.
"""

from __future__ import annotations

import functools
import os
import random
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from ultralytics.data import base, utils
from ultralytics.data.converter import merge_multi_segment
from ultralytics.data.dataset import YOLODataset
from ultralytics.engine import trainer, validator
from ultralytics.utils.ops import segments2boxes

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.images.decode import imdecode
from fastload.images.encodings import encoding_named
from fastload.images.header import orientation_of
from fastload.images.opencv import cv2
from fastload.images.pixel_types import RGB
from fastload.images.region import swaps_sides, upright
from fastload.shards.manifest import looks_packed, packed_datasets
from fastload.shards.record import Record
from fastload.shards.records import RecordReader
from fastload.system.patching import Replacement
from fastload.transforms.annotations import Floats
from fastload.ultralytics.steps import Labels

_plain_check = utils.check_det_dataset
_plain_files = base.BaseDataset.get_img_files
_plain_labels = YOLODataset.get_labels
_plain_read = base.imread

_SPLITS = ("train", "val", "test")

# The default of `max_files` in ultralytics.data.utils.check_file_speeds (8.4).
_TIMED_FILES = 5

_opened: dict[str, PackedImages] = {}  # by folder


def packed_replacements() -> list[Replacement]:
    """Return the replacements of functions and methods: (owner, name, function)."""
    return [
        *((module, "check_det_dataset", _check_det_dataset) for module in (utils, trainer, validator)),
        (base.BaseDataset, "get_img_files", _get_img_files),
        (YOLODataset, "get_labels", _get_labels),
    ]


class PackedImages:
    """Records of a packed dataset, read by the names of files."""

    def __init__(self, folder: str) -> None:
        # Records are verified when their images are read, and not for their labels and keys.
        self._reader = RecordReader(folder)
        self._unverified = RecordReader(folder, "never")
        manifest = self._reader.manifest
        if manifest.image is None:
            raise OptionError(f"{folder}: must have images to train YOLO, and its records have none")
        if manifest.image.pixel_type != RGB:
            raise OptionError(
                f"{folder}: must have images of {RGB} to train YOLO, got {manifest.image.pixel_type}: pack "
                "them with --convert uint8, or give Ultralytics the files, of which it takes others"
            )
        self._encoding = encoding_named(manifest.image.encoding)
        self._is_upright = bool(manifest.details.get("is_upright"))
        self._fields = {field.name: field for field in manifest.fields}
        self.identity = " ".join(shard.identity for shard in manifest.shards)
        records = range(len(self._reader))
        self.index = {os.path.join(folder, self._unverified.read(at).key): at for at in records}

    def pixels(self, name: str) -> Pixels:
        """Return an image, BGR, as Ultralytics reads its file."""
        record = self._reader.read(self.index[name])
        if self._encoding.holds_files:
            data = bytes(record.stored("image"))
            image = imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
            return upright(image, orientation_of(data)) if self._is_upright else image
        rgb = self._encoding.decode(record.stored("image"), record.image_shape())
        out = rgb if rgb.flags.writeable else None
        return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR, dst=out), np.uint8)

    def label(self, name: str, has_keypoints: bool, has_outlines: bool) -> Labels:
        """Return the objects of an image as Ultralytics' reader of label files does.

        Label files have boxes or outlines. Of sources with both, such as COCO, a task gets the ones it needs.
        """
        record = self._unverified.read(self.index[name])
        height, width = self._size(record)
        classes = record["labels"] if "labels" in self._fields else np.zeros(0)
        single = np.flatnonzero(~record["iscrowd"].astype(bool)) if "iscrowd" in self._fields else ...
        scale = np.array([width, height], np.float64)
        boxes_field = self._fields.get("boxes")
        is_yolo = boxes_field is not None and boxes_field.format == "cxcywh"
        segments = self._segments(record, scale) if has_outlines or is_yolo else []
        if single is not ... and segments:
            segments = [segments[at] for at in single]
        classes = np.array(classes, np.float32)[single].reshape(-1, 1)
        boxes = segments2boxes(segments) if segments else self._boxes(record, scale)[single]
        keypoints = self._keypoints(record, scale)[single] if has_keypoints else None
        return {
            "im_file": name,
            "shape": (height, width),
            "cls": classes,
            "bboxes": np.asarray(boxes, np.float32),
            "segments": segments,
            "keypoints": keypoints,
            "normalized": True,
            "bbox_format": "xywh",
        }

    def _size(self, record: Record) -> tuple[int, int]:
        height, width, _ = record.image_shape()
        if not self._encoding.holds_files or not self._is_upright:
            return height, width
        is_turned = swaps_sides(orientation_of(bytes(record.stored("image"))))
        return (width, height) if is_turned else (height, width)

    def _boxes(self, record: Record, scale: NDArray[np.float64]) -> Floats:
        field = self._fields.get("boxes")
        if field is None:
            return np.zeros((0, 4), np.float32)
        boxes = record["boxes"] if field.relative else record["boxes"] / np.tile(scale, 2)
        if field.format == "xyxy":
            boxes = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
        if field.format != "cxcywh":
            boxes = np.concatenate([boxes[:, :2] + boxes[:, 2:] / 2, boxes[:, 2:]], axis=1)
        return np.asarray(boxes, np.float32)

    def _segments(self, record: Record, scale: NDArray[np.float64]) -> list[Floats]:
        """Return one outline for each object; nothing unless all have one."""
        for name in ("corners", "polygons"):
            field = self._fields.get(name)
            if field is None:
                continue
            factor = 1.0 if field.relative else 1 / scale
            objects = [[each] if name == "corners" else each for each in record[name]]
            if not all(objects):
                return []
            joined = [
                rings[0] if len(rings) == 1 else np.concatenate(merge_multi_segment(list(rings)))
                for rings in objects
            ]
            return [(ring * factor).astype(np.float32) for ring in joined]
        return []

    def _keypoints(self, record: Record, scale: NDArray[np.float64]) -> Floats:
        field = self._fields.get("keypoints")
        if field is None:
            raise OptionError(
                f"{self._reader.folder}: training for poses needs the field keypoints, got "
                f"{', '.join(self._fields)}: pack a dataset with keypoints (kpt_shape in its yaml file)"
            )
        points = np.array(record["keypoints"], np.float32)
        if not field.relative:
            points[..., :2] /= scale
        if points.shape[-1] == 2:
            is_seen = (points >= 0).all(axis=-1, keepdims=True)
            points = np.concatenate([points, is_seen.astype(np.float32)], axis=-1)
        return points


def packed_at(folder: str) -> PackedImages:
    """Return the records of a packed dataset; each process opens it once."""
    if folder not in _opened:
        _opened[folder] = PackedImages(folder)
    return _opened[folder]


def packed_of(name: str) -> PackedImages | None:
    """Return the packed dataset in whose folder a file is named; None for an ordinary file."""
    folder = str(name)
    # A folder of splits holds packed datasets, whose names end with .fl too.
    while f".fl{os.sep}" in folder:
        folder = folder.rpartition(f".fl{os.sep}")[0] + ".fl"
        if folder in _opened or looks_packed(Path(folder)):
            return packed_at(folder)
    return None


@functools.wraps(_plain_check)
def _check_det_dataset(dataset: object, *args: object, **options: object) -> dict[str, object]:
    if Path(str(dataset)).suffix != ".fl":
        return _plain_check(dataset, *args, **options)  # type: ignore[no-any-return]
    folder = Path(os.path.abspath(os.path.expanduser(str(dataset))))
    found = packed_datasets(folder)
    splits = {path.stem: str(path) for path in found if path.stem in _SPLITS}
    splits.setdefault("train", str(found[0]))
    splits.setdefault("val", splits.get("test", splits["train"]))
    manifest = RecordReader(splits["train"]).manifest
    described = yaml.safe_load(str(manifest.details.get("yaml") or "{}"))
    names = dict(enumerate(manifest.classes))
    entries = "kpt_shape", "flip_idx", "kpt_names"
    keypoints = {name: described[name] for name in entries if name in described}
    return {"path": folder, **splits, "names": names, "nc": len(names), "channels": 3, **keypoints}


@functools.wraps(_plain_files)
def _get_img_files(self: base.BaseDataset, img_path: str | list[str]) -> list[str]:
    paths = img_path if isinstance(img_path, list) else [img_path]
    if not all(str(path).endswith(".fl") for path in paths):
        return _plain_files(self, img_path)  # type: ignore[no-any-return]
    names = sorted(name for path in paths for name in packed_at(str(path)).index)
    count = self.fraction if isinstance(self.fraction, int) else max(1, round(len(names) * self.fraction))
    names = names[:count]
    # Ultralytics chooses files to time by a random draw; it is repeated, so that later draws stay the same.
    random.sample(names, min(_TIMED_FILES, len(names)))
    return names


@functools.wraps(_plain_labels)
def _get_labels(self: YOLODataset) -> list[Labels]:
    if packed_of(self.im_files[0]) is None:
        return _plain_labels(self)  # type: ignore[no-any-return]
    self.label_files = list(self.im_files)
    found = []
    for name in self.im_files:
        packed = packed_of(name)
        assert packed is not None
        found.append(packed.label(name, self.use_keypoints, self.use_segments or self.use_obb))
    self.verify_labels(found, Path(self.im_files[0]).parent)
    return found


@functools.wraps(_plain_read)
def read(filename: str, *args: object, **options: object) -> Pixels | None:
    """Return the image of a record, or of a file as Ultralytics reads it."""
    packed = packed_of(filename)
    if packed is None:
        return _plain_read(filename, *args, **options)  # type: ignore[no-any-return]
    return packed.pixels(str(filename))
