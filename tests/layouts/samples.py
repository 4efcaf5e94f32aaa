"""Small datasets of annotated images, written for tests."""

import copy
import json
from pathlib import Path

import numpy as np

from tests.folders import encoded, pixels

SIZE = (40, 50)  # height, width
NAMES = ["cat", "dog", "owl"]

ROWS = {
    "boxes": [
        "0 0.5 0.5 0.25 0.125\n2 0.123456 0.4 0.2 0.3\n",
        "1 0.3 0.3 0.1 0.1\n",
        None,
        "2 0.5 0.5 1 1\n",
    ],
    "polygons": [
        "0 0.1 0.1 0.5 0.2 0.4 0.6\n1 0 0 1 0 1 1 0 1 0.5 0.5\n",
        "2 0.2 0.2 0.3 0.2 0.3 0.9\n",
        None,
        None,
    ],
    "corners": ["0 0.1 0.1 0.5 0.2 0.4 0.6 0.05 0.5\n", "1 0.2 0.2 0.3 0.2 0.3 0.9 0.2 0.9\n", None, None],
    "keypoints": [
        "0 0.5 0.5 0.4 0.4 0.4 0.4 2 0.6 0.6 1\n0 0.3 0.3 0.1 0.1 0 0 0 0.3 0.3 2\n",
        "2 0.5 0.5 0.4 0.4 0.41 0.42 2 0.6 0.6 0\n",
        None,
        None,
    ],
}


def photo(number: int) -> bytes:
    return encoded(pixels(number, *SIZE))


def mask(number: int) -> bytes:
    labels = np.zeros(SIZE, np.uint8)
    labels[5:20, 5 + number : 30] = 1 + number % 3
    return encoded(labels, ".png")


def written(root: Path, tree: dict[str, bytes | str]) -> Path:
    for name, data in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return root


def yolo(root: Path, task: str = "boxes", *, has_masks: bool = False) -> Path:
    """Two splits of two images with a data.yaml in the form in which `unpack` writes it."""
    tree: dict[str, bytes | str] = {}
    for number, rows in enumerate(ROWS[task]):
        split = "train" if number < 2 else "val"
        tree[f"images/{split}/{number}.jpg"] = photo(number)
        if rows is not None:
            tree[f"labels/{split}/{number}.txt"] = rows
        if has_masks and number != 1:
            tree[f"masks/{split}/{number}.png"] = mask(number)
    names = "".join(f"  {label}: {name}\n" for label, name in enumerate(NAMES))
    keypoints = "kpt_shape:\n- 2\n- 3\nflip_idx:\n- 1\n- 0\n" if task == "keypoints" else ""
    further = f"nc: 3\n{keypoints}kpt_names:\n  0:\n  - nose\nreleased: 2024-01-02\ndownload: http://x\n"
    tree["data.yaml"] = f"train: images/train\nval: images/val\nnames:\n{names}{further}"
    return written(root, tree)


def run_lengths(mask: np.ndarray) -> dict:
    """Return COCO's run lengths of a mask."""
    flat = mask.T.reshape(-1)
    changes = [0, *(np.flatnonzero(np.diff(flat)) + 1).tolist(), flat.size]
    return {"size": list(mask.shape), "counts": [0] * int(flat[0]) + np.diff(changes).tolist()}


def coco_content() -> dict:
    """Return a COCO json of three images: polygons, both forms of run lengths, keypoints."""
    inside = np.zeros(SIZE, np.uint8)
    inside[10:20, 5:25] = 1
    polygon = {"segmentation": [[1.5, 2.25, 20.5, 3, 10, 30.125], [1, 1, 5, 1, 5, 5, 1, 5]]}
    point = {"keypoints": [5, 6, 2, 0, 0, 0], "num_keypoints": 1}
    return {
        "info": {"year": 2017},
        "licenses": [{"id": 1, "name": "x"}],
        "images": [
            {"id": 9, "file_name": "b.jpg", "height": 40, "width": 50, "license": 1},
            {"id": 4, "file_name": "a.jpg", "height": 40, "width": 50, "coco_url": "http://x"},
            {"id": 12, "file_name": "c.jpg", "height": 40, "width": 50},
        ],
        "annotations": [
            {
                "id": 1,
                "image_id": 9,
                "category_id": 18,
                "bbox": [1.5, 2.25, 19, 27.87],
                "area": 263.5,
                "iscrowd": 0,
            }
            | polygon
            | point,
            {"id": 7, "image_id": 4, "category_id": 3, "bbox": [5, 10, 20, 10], "area": 200, "iscrowd": 1}
            | {"segmentation": run_lengths(inside), "keypoints": [0] * 6, "num_keypoints": 0},
            {"id": 5, "image_id": 9, "category_id": 3, "bbox": [0, 0, 50, 40], "area": 2000, "iscrowd": 0}
            | {"segmentation": [[0, 0, 50, 0, 50, 40, 0, 40]], "attributes": {"x": 1}}
            | point,
        ],
        "categories": [
            {"id": 18, "name": "dog", "supercategory": "animal"},
            {
                "id": 3,
                "name": "car",
                "supercategory": "vehicle",
                "keypoints": ["a", "b"],
                "skeleton": [[1, 2]],
            },
        ],
    }


def coco(root: Path, content: dict | None = None) -> Path:
    content = copy.deepcopy(coco_content()) if content is None else content
    images = {f"val2017/{name}.jpg": photo(number) for number, name in enumerate("abc")}
    return written(root, {**images, "annotations/instances_val2017.json": json.dumps(content)})


def voc_xml(objects: str, size: str = "<width>50</width><height>40</height><depth>3</depth>") -> str:
    return f"<annotation>\n  <filename>x.jpg</filename>\n  <size>{size}</size>\n{objects}\n</annotation>\n"


def voc_object(name: str = "cat", box: tuple[object, ...] = (3, 4, 20, 30), more: str = "") -> str:
    sides = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=False))
    return f"  <object><name>{name}</name>{more}<bndbox>{sides}</bndbox></object>"


def voc(root: Path, *, has_masks: bool = True) -> Path:
    """Three images in two splits; one of them has masks."""
    flags = "<pose>Left</pose><truncated>1</truncated><difficult>1</difficult>"
    part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
    xml = {
        "x": voc_xml(voc_object("owl", (1, 1, 50, 40), flags) + part),
        "y": voc_xml(voc_object("cat", (3.5, 4, 20, 30)) + voc_object("owl")),
        "z": voc_xml(""),
    }
    tree: dict[str, bytes | str] = {f"Annotations/{stem}.xml": text for stem, text in xml.items()}
    tree |= {f"JPEGImages/{stem}.jpg": photo(number) for number, stem in enumerate(xml)}
    tree |= {"ImageSets/Main/train.txt": "x\nz\n", "ImageSets/Main/val.txt": "y\n"}
    if has_masks:
        tree |= {"SegmentationClass/x.png": mask(0), "SegmentationObject/x.png": mask(1)}
    return written(root, tree)


def masks(root: Path) -> Path:
    images = {f"images/{number}.jpg": photo(number) for number in range(4)}
    return written(root, images | {f"masks/{number}_mask.png": mask(number) for number in range(4)})
