"""Descriptions of datasets that contradict themselves or their files: an error when the source is listed."""

import copy
import json

import numpy as np
import pytest

from fastload import SourceError
from fastload.sources import open_source
from tests.layouts.containers import image, npy, write_tar
from tests.layouts.samples import coco_content, mask, photo, written

YAML = "train: images\nnames: [cat]\n"
IMAGES = {f"images/{number}.jpg": photo(number) for number in range(4)}
OTHER_CATEGORIES = copy.deepcopy(coco_content()) | {"categories": [{"id": 1, "name": "ant"}]}

# The files of a dataset, the path that is listed, and a part of the message.
DATASETS = {
    "two YOLO descriptions": ({**IMAGES, "a.yaml": YAML, "b.yaml": YAML}, "", "hold one description"),
    "YOLO without splits": ({"data.yaml": "train:\nnames: [cat]\n"}, "data.yaml", "have train, val or test"),
    "a COCO list": ({"x.json": '["images", "image_id"]'}, "x.json", "hold images and annotations, got list"),
    "COCO splits of other categories": (
        {
            "annotations/instances_train.json": json.dumps(coco_content()),
            "annotations/instances_val.json": json.dumps(OTHER_CATEGORIES | {"annotations": []}),
        },
        "",
        "have the categories of",
    ),
    "two masks of an image": (
        IMAGES
        | {f"masks/{number}_mask.png": mask(number) for number in range(4)}
        | {"masks/0_gt.png": mask(0)},
        "",
        "be the only mask of its image",
    ),
    "rows without boxes": (
        {**IMAGES, "x.csv": "image,xmin,ymin,xmax,ymax\nimages/0.jpg,,,,\n"},
        "x.csv",
        "have a box in one row or more",
    ),
    "a Hugging Face dataset of no files": (
        {"state.json": '{"_data_files": []}', "dataset_info.json": "{}"},
        "",
        "name data files in its state.json",
    ),
    "a Hugging Face dataset of no list": (
        {"state.json": '{"_data_files": 5}', "dataset_info.json": "{}"},
        "",
        "list the data files, got 5",
    ),
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_wrong_description_is_refused(tmp_path, name):
    tree, path, message = DATASETS[name]
    with pytest.raises(SourceError, match=message):
        open_source(written(tmp_path / "data", tree) / path)


def test_an_array_of_a_tar_that_was_cut_off_is_named(tmp_path):
    data = npy(np.arange(6.0))
    members = {"a.jpg": image(0), "a.npy": data, "b.jpg": image(1), "b.npy": data[:-8]}
    [source] = open_source(write_tar(tmp_path / "x.tar", members)).values()
    with pytest.raises(SourceError, match=r"sample 'b', \.npy: must be a complete array"):
        source.read(1)
