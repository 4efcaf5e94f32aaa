"""Recognition of annotation files by their first bytes: those of the layouts, and those that none reads."""

from __future__ import annotations

import codecs
import os
import re
from typing import NamedTuple

TABLE_OF_BOXES = "write a table (path, xmin, ymin, xmax, ymax, label)"
_TABLE_OF_TEXTS = "write a table with a column for the images and one for the texts"
_EXPORT = "export them as COCO or YOLO"
_OF_ULTRALYTICS = f"{TABLE_OF_BOXES}, or take the script in Ultralytics' YAML file of this dataset"


class AnnotationKind(NamedTuple):
    """A kind of annotations, the suffix and the content of its files, and how to bring it into a layout."""

    title: str
    suffix: str
    content: bytes  # a regular expression, of a whole row in a .txt file
    step: str = TABLE_OF_BOXES
    what: str = "boxes"


_NUMBER = rb"-?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?"

# A row of a YOLO file: a class, then a box of four numbers or a polygon of six or more, relative to the
# image.
YOLO = AnnotationKind(
    "YOLO",
    ".txt",
    rb"[0-9]+(\.0*)?(\s+%b){4,}\s*" % _NUMBER,
    "move the images to 'images' and the labels to 'labels' beside it, each with its splits inside, first",
)
_VOC = AnnotationKind("Pascal VOC", ".xml", rb"<annotation\b")
_LABELME = AnnotationKind(
    "LabelMe", ".json", rb'"shapes"', "convert them with LabelMe's labelme2coco.py or labelme2voc.py"
)
_DOTA = (
    rb"(imagesource|gsd):.*|\s*(%b\s+){8}\S*[A-Za-z]\S*\s+[0-2]\s*" % _NUMBER,
    "convert them to YOLO with ultralytics.data.converter.convert_dota_to_yolo_obb",
)
_BDD = (
    rb'"(box2d|poly2d)"\s*:',
    "convert them to COCO with BDD100K's toolkit (python -m bdd100k.label.to_coco)",
)
_KINDS = (
    YOLO,
    _VOC,
    _LABELME,
    AnnotationKind("DOTA", ".txt", *_DOTA),
    AnnotationKind("VisDrone", ".txt", rb"([0-9]+,){4}[01](,-?[0-9]+){3},?\s*", _OF_ULTRALYTICS),
    AnnotationKind("MOTChallenge", ".txt", rb"(%b, *){6,9}%b\s*" % (_NUMBER, _NUMBER)),
    AnnotationKind("ICDAR", ".txt", rb"([0-9]+, *){8}\S.*"),
    AnnotationKind("KITTI", ".txt", rb"[A-Za-z_]+(\s+%b){14,15}\s*" % _NUMBER),
    AnnotationKind("CVAT", ".xml", rb"<annotations>", _EXPORT),
    AnnotationKind(
        "Label Studio", ".json", rb'"annotations"\s*:\s*\[\s*\{(?s:.{0,2000}?)"result"\s*:', _EXPORT
    ),
    AnnotationKind(
        "Datumaro", ".json", rb'"categories"\s*:(?s:.*)"items"\s*:\s*\[', f"{_EXPORT} (datum convert -f coco)"
    ),
    AnnotationKind("BDD100K", ".json", *_BDD),
    AnnotationKind("VGG Image Annotator", ".json", rb'"shape_attributes"', _EXPORT),
    AnnotationKind("Supervisely", ".json", rb'"classTitle"', _EXPORT),
    AnnotationKind("CreateML", ".json", rb'"coordinates"\s*:\s*\{', _EXPORT),
    AnnotationKind("Cityscapes", ".json", rb'"imgHeight"', "write a table (path, mask)", "polygons"),
    AnnotationKind("VQA", ".json", rb'"(questions?|question_id)"\s*:', _TABLE_OF_TEXTS, "questions"),
    AnnotationKind("JSON", ".json", rb'"(captions?|caption_str|sentences)"\s*:', _TABLE_OF_TEXTS, "captions"),
    AnnotationKind("GeoJSON, as of xView", ".geojson", rb"", _OF_ULTRALYTICS),
    AnnotationKind(
        "300-W", ".pts", rb"n_points", "write a table with a column for each of them", "landmarks"
    ),
)
ANNOTATION_SUFFIXES = tuple(dict.fromkeys(kind.suffix for kind in _KINDS))
"""The suffixes of annotation files that can be told by their contents."""


def annotation_kind(path: str, head: bytes) -> AnnotationKind | None:
    """Return the kind of annotations in a file, by its suffix and its start; None if it is none of them."""
    suffix = os.path.splitext(path)[1].lower()
    return next((kind for kind in _KINDS if kind.suffix == suffix and _fits(kind, head)), None)


def holds_boxes(path: str, head: bytes) -> bool:
    """Return True if the start of a .txt, .xml or .json file is one with boxes of YOLO, VOC or LabelMe."""
    return annotation_kind(path, head) in (YOLO, _VOC, _LABELME)


def _fits(kind: AnnotationKind, head: bytes) -> bool:
    if kind.suffix != ".txt":
        return re.search(kind.content, head) is not None
    rows = [row for row in head.removeprefix(codecs.BOM_UTF8).splitlines() if row.strip()][:3]
    return bool(rows) and all(re.fullmatch(kind.content, row) for row in rows)
