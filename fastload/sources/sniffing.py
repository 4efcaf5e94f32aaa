"""Recognition of annotation files by their first bytes: those of the layouts, and those that none reads."""

from __future__ import annotations

import codecs
import os
import re
from typing import NamedTuple

_FROM_ULTRALYTICS = "the script in Ultralytics' {}.yaml, which converts them to YOLO"
_TABLE_OF_BOXES = "write a table (path, xmin, ymin, xmax, ymax, label)"
_TABLE_OF_TEXTS = "write a table with a column for the images and one for the texts"


class AnnotationKind(NamedTuple):
    """A kind of annotations, the suffix and the content of its files, and how to bring it into a layout."""

    title: str
    suffix: str
    content: bytes  # a regular expression, of a whole row in a .txt file
    step: str = _TABLE_OF_BOXES
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

_KINDS = (
    YOLO,
    AnnotationKind(
        "DOTA",
        ".txt",
        rb"(imagesource|gsd):.*|\s*(%b\s+){8}\S*[A-Za-z]\S*\s+[0-2]\s*" % _NUMBER,
        "convert them to YOLO with ultralytics.data.converter.convert_dota_to_yolo_obb",
    ),
    AnnotationKind(
        "VisDrone",
        ".txt",
        rb"([0-9]+,){4}[01](,-?[0-9]+){3},?\s*",
        f"write a table of them, or take {_FROM_ULTRALYTICS.format('VisDrone')}",
    ),
    AnnotationKind("MOTChallenge", ".txt", rb"(%b, *){6,9}%b\s*" % (_NUMBER, _NUMBER)),
    AnnotationKind("ICDAR", ".txt", rb"([0-9]+, *){8}\S.*"),
    AnnotationKind("KITTI", ".txt", rb"[A-Za-z_]+(\s+%b){14,15}\s*" % _NUMBER),
    _VOC,
    AnnotationKind("CVAT", ".xml", rb"<annotations>", "export them from CVAT as COCO or YOLO"),
    _LABELME,
    AnnotationKind(
        "Label Studio", ".json", rb'"result"\s*:\s*\[', "export them from Label Studio as COCO or YOLO"
    ),
    AnnotationKind(
        "Datumaro",
        ".json",
        rb'"items"\s*:\s*\[',
        "convert them to COCO with Datumaro (datum convert -f coco)",
    ),
    AnnotationKind(
        "BDD100K",
        ".json",
        rb'"(box2d|poly2d)"\s*:',
        "convert them to COCO with BDD100K's toolkit (python -m bdd100k.label.to_coco)",
    ),
    AnnotationKind("VGG Image Annotator", ".json", rb'"shape_attributes"', "export them as COCO"),
    AnnotationKind("Supervisely", ".json", rb'"classTitle"', "export them as COCO or YOLO"),
    AnnotationKind("CreateML", ".json", rb'"coordinates"\s*:\s*\{', "export them as COCO or YOLO"),
    AnnotationKind("Cityscapes", ".json", rb'"imgHeight"', "write a table (path, mask)", "polygons"),
    AnnotationKind("VQA", ".json", rb'"questions?"\s*:', _TABLE_OF_TEXTS, "questions"),
    AnnotationKind("JSON", ".json", rb'"(captions?|caption_str|sentences)"\s*:', _TABLE_OF_TEXTS, "captions"),
    AnnotationKind(
        "GeoJSON",
        ".geojson",
        rb"",
        f"{_TABLE_OF_BOXES}; for xView, take {_FROM_ULTRALYTICS.format('xView')}",
    ),
    AnnotationKind(
        "300-W", ".pts", rb"n_points", "write a table with a column for each coordinate", "landmarks"
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
