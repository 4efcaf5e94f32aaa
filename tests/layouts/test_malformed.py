"""Malformed annotations: an error, or a listed skip, that names the file and the line or annotation."""

import pytest

from fastload import PackedDataset, SourceError, pack
from tests.layouts.samples import NAMES, coco, coco_content, photo, voc, voc_object, voc_xml, written

GOOD = "0 0.5 0.5 0.25 0.125\n"

# The label file, and the line that is named.
YOLO_ROWS = {
    "four columns": (GOOD + "0 0.5 0.5 0.25\n", 2),
    "six columns": ("0 0.5 0.5 0.25 0.125 0.9\n", 1),
    "no number": (GOOD + GOOD[:-1].replace("0.25", "x") + "\n", 2),
    "comma": ("0,0.5,0.5,0.25,0.125\n", 1),
    "nan": ("0 nan 0.5 0.25 0.125\n", 1),
    "infinity": ("0 0.5 0.5 inf 0.125\n", 1),
    "underscore": ("0 0.5 0.5 0.2_5 0.125\n", 1),
    "negative class": ("-1 0.5 0.5 0.25 0.125\n", 1),
    "class beyond names": ("3 0.5 0.5 0.25 0.125\n", 1),
    "class with fraction": ("0.5 0.5 0.5 0.25 0.125\n", 1),
    "pixels": ("0 20 20 10 10\n", 1),
    "beyond the image": (GOOD + "\n0 1.02 0.5 0.25 0.125\n", 3),
    "negative coordinate": ("0 -0.02 0.5 0.25 0.125\n", 1),
    "negative width": ("0 0.5 0.5 -0.005 0.125\n", 1),
    "polygon after a box": (GOOD + "0 0.1 0.1 0.5 0.1 0.5 0.5\n", 2),
    "bytes of no text": (GOOD + "0 0.5 \xff\n", 2),
    "digits of another script": ("0 ٠.٥ 0.5 0.25 0.125\n".encode().decode("latin-1"), 1),
    "zero byte": ("0 0.5 0.5 0.25 0.125\0\n", 1),
    "beyond float64": ("0 1e400 0.5 0.25 0.125\n", 1),
    "name for a class": ("cat 0.5 0.5 0.25 0.125\n", 1),
}
# float() takes underscores, and NumPy's comparison with nan is false, so that it is no smaller than 0.
ACCEPTED_BY_ULTRALYTICS: set[str] = {"underscore"}


def packed(root, tmp_path):
    """Pack with skipping; return the result after checking that packing without it fails alike."""
    with pytest.raises(SourceError) as caught:
        pack(root, tmp_path / "fail.fl", encode="keep", workers=1)
    result = pack(root, tmp_path / "x.fl", encode="keep", on_error="skip", workers=1)
    [skipped] = [skip for split in result.splits for skip in split.skipped]
    assert skipped.reason in str(caught.value)
    return skipped


@pytest.mark.parametrize("name", YOLO_ROWS)
def test_yolo_row(tmp_path, name):
    text, line = YOLO_ROWS[name]
    tree = {
        "images/a.jpg": photo(0),
        "labels/a.txt": text.encode("latin-1"),
        "images/b.jpg": photo(1),
        "labels/b.txt": GOOD,
        "data.yaml": f"train: images\nnames: {NAMES}\n",
    }
    skipped = packed(written(tmp_path / "data", tree), tmp_path)
    assert skipped.key == "images/a.jpg"
    assert f"labels/a.txt, line {line}: must " in skipped.reason
    dataset = PackedDataset(tmp_path / "x.fl/train.fl")
    assert [dataset.read(at).key for at in range(len(dataset))] == ["images/b.jpg"]


OTHER_YOLO = {
    "polygon of an odd point": ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4\n", ""),
    "polygon of two points": ("0 0.1 0.1 0.2 0.2 0.3 0.3\n0 0.1 0.1 0.2 0.2 0.4 0.4 0.1\n", ""),
    "polygon beside a box": ("0 0.1 0.1 0.2 0.2 0.3 0.3\n" + GOOD, ""),
    "polygon beyond the image": ("0 0.1 0.1 0.2 0.2 3 3\n", ""),
    "keypoints of another number": ("0 0.5 0.5 0.2 0.2 0.5 0.5 2\n", "kpt_shape: [2, 3]\n"),
    "keypoint beyond the image": ("0 0.5 0.5 0.2 0.2 0.5 0.5 2 0.5 1.5 2\n", "kpt_shape: [2, 3]\n"),
    "keypoints without a shape": ("0 0.5 0.5 0.2 0.2 0.5 0.5 2\n", ""),
}


@pytest.mark.parametrize("name", OTHER_YOLO)
def test_yolo_row_of_another_task(tmp_path, name):
    text, shape = OTHER_YOLO[name]
    good = "0 0.5 0.5 0.2 0.2 0.5 0.5 2 0.5 0.5 2\n" if shape else "0 0.1 0.1 0.2 0.2 0.3 0.1\n"
    tree = {"images/a.jpg": photo(0), "labels/a.txt": text, "images/b.jpg": photo(1), "labels/b.txt": good}
    root = written(tmp_path / "data", tree | {"data.yaml": f"train: images\nnames: {NAMES}\n{shape}"})
    assert "labels/a.txt" in packed(root, tmp_path).reason


YAML = {
    "no names": "train: images\nnc:\n",
    "names and nc differ": "train: images\nnames: [a]\nnc: 2\n",
    "names with a gap": "train: images\nnames: {0: a, 2: b}\n",
    "names without numbers": "train: images\nnames: {a: b}\n",
    "nc of words": "train: images\nnc: many\n",
    "no such folder": "train: imagez\nnames: [a]\n",
    "split of numbers": "train: 5\nnames: [a]\n",
    "malformed": "train: images\nnames: [a\n",
    "a tag that would run code": "train: images\nnames: !!python/object/apply:os.getcwd []\n",
    "keypoints of five numbers": "train: images\nnames: [a]\nkpt_shape: [2, 5]\n",
    "names twice": "train: images\nnames: [a]\nnames: [b]\n",
    "a number twice": "train: images\nnames: {0: a, 0: b}\n",
    "a trillion classes": "train: images\nnc: 1000000000000\n",
    "lists within lists": "train: images\na: &a [1]\nb: &b [*a, *a, *a, *a]\nnames: [[*b, *b, *b], *b]\n",
    "half a character": 'train: images\nnames: ["\\ud800"]\n',
    "a path of numbers": "path: [1]\ntrain: images\nnames: [a]\n",
}


@pytest.mark.parametrize("name", YAML)
def test_yolo_description(tmp_path, name):
    tree = {"images/a.jpg": photo(0), "labels/a.txt": GOOD, "data.yaml": YAML[name]}
    root = written(tmp_path / "data", tree)
    with pytest.raises(SourceError, match=r"data\.yaml"):
        pack(root / "data.yaml", tmp_path / "x.fl", workers=1)


def test_labels_that_are_not_where_they_should_be(tmp_path):
    tree = {"images/a.jpg": photo(0), "label/a.txt": GOOD, "data.yaml": "train: images\nnames: [a]\n"}
    with pytest.raises(SourceError, match=r"label files, such as .*labels/a\.txt"):
        pack(written(tmp_path / "data", tree), tmp_path / "x.fl", workers=1)


def change(*path, **values):
    def apply(content):
        part = content
        for step in path:
            part = part[step]
        part.update(values)

    return apply


OBJECT = ("annotations", 0)
COCO_OBJECTS = {
    "bbox of three": change(*OBJECT, bbox=[1, 2, 3]),
    "bbox of words": change(*OBJECT, bbox=["1", 2, 3, 4]),
    "bbox with nan": change(*OBJECT, bbox=[float("nan"), 2, 3, 4]),
    "bbox missing": change(*OBJECT, bbox=None),
    "negative width": change(*OBJECT, bbox=[5, 5, -2, 4]),
    "bbox beyond float64": change(*OBJECT, bbox=[10**400, 2, 3, 4]),
    "polygon beyond the image": change(*OBJECT, segmentation=[[90, 90, 95, 90, 95, 95]]),
    "run lengths without an end": change(*OBJECT, segmentation={"size": [40, 50], "counts": "o" * 10**6}),
    "beyond the image": change(*OBJECT, bbox=[55, 5, 2, 4]),
    "unknown category": change(*OBJECT, category_id=99),
    "category of words": change(*OBJECT, category_id="18"),
    "negative area": change(*OBJECT, area=-1),
    "crowd of two": change(*OBJECT, iscrowd=2),
    "polygon of two points": change(*OBJECT, segmentation=[[1, 2, 3, 4]]),
    "polygon of an odd number": change(*OBJECT, segmentation=[[1, 2, 3, 4, 5, 6, 7]]),
    "segmentation of words": change(*OBJECT, segmentation="x"),
    "run lengths too short": change(*OBJECT, segmentation={"size": [40, 50], "counts": [5, 5]}),
    "run lengths of another size": change(*OBJECT, segmentation={"size": [50, 40], "counts": [2000]}),
    "run lengths of no text": change(*OBJECT, segmentation={"size": [40, 50], "counts": "\x7f"}),
    "negative run": change(*OBJECT, segmentation={"size": [40, 50], "counts": [-5, 2005]}),
    "keypoints of another number": change(*OBJECT, category_id=3, keypoints=[1, 2, 2]),
    "keypoints of no triples": change(*OBJECT, keypoints=[1, 2, 2, 1]),
    "visibility of three": change(*OBJECT, keypoints=[1, 2, 3, 0, 0, 0]),
}


@pytest.mark.parametrize("name", COCO_OBJECTS)
def test_coco_annotation(tmp_path, name):
    content = coco_content()
    COCO_OBJECTS[name](content)
    skipped = packed(coco(tmp_path / "data", content), tmp_path)
    assert (skipped.key, "json, annotation 1: must " in skipped.reason) == ("val2017/b.jpg", True)


def test_coco_image_of_another_size(tmp_path):
    content = coco_content()
    content["images"][0]["width"] = 60
    skipped = packed(coco(tmp_path / "data", content), tmp_path)
    assert "got 60" in skipped.reason


def all_boxes(content, box):
    for annotation in content["annotations"]:
        annotation["bbox"] = box


COCO_FILES = {
    "image of no annotation's": (change(*OBJECT, image_id=77), "annotation 1"),
    "no id": (change(*OBJECT, id=None), r"annotations\[0\]"),
    "repeated id": (change(*OBJECT, id=7), r"annotations\[1\]"),
    "repeated image": (change("images", 1, id=9), r"images\[1\]"),
    "name that leads out": (change("images", 0, file_name="../b.jpg"), "image 9"),
    "name with a drive": (change("images", 0, file_name="C:\\b.jpg"), "image 9"),
    "name of half a character": (change("images", 0, file_name="\ud800.jpg"), "image 9"),
    "id beyond int64": (change(*OBJECT, id=2**63), r"annotations\[0\]"),
    "corners": (lambda content: all_boxes(content, [30, 20, 45, 35]), "got x1 y1 x2 y2 in all"),
    "fractions": (lambda content: all_boxes(content, [0.1, 0.1, 0.5, 0.5]), "got fractions in all"),
    "name of no text": (change("images", 0, file_name=5), "image 9"),
    "category without a name": (change("categories", 0, name=None), "category 18"),
    "images are no list": (change(images={}), "images"),
    "images are elsewhere": (
        lambda content: [image.update(file_name=f"x{image['id']}.jpg") for image in content["images"]],
        "folder near it",
    ),
}


@pytest.mark.parametrize("name", COCO_FILES)
def test_coco_file(tmp_path, name):
    damage, named = COCO_FILES[name]
    content = coco_content()
    damage(content)
    with pytest.raises(SourceError, match=rf"instances_val2017\.json.*{named}"):
        pack(coco(tmp_path / "data", content), tmp_path / "x.fl", on_error="skip", workers=1)


def test_a_member_that_a_json_names_twice_is_refused(tmp_path):
    root = coco(tmp_path / "data")
    path = root / "annotations/instances_val2017.json"
    path.write_text(path.read_text().replace('"info"', '"images": [], "info"'))
    with pytest.raises(SourceError, match=r"instances_val2017\.json.*a second 'images'"):
        pack(path, tmp_path / "x.fl", workers=1)


VOC = {
    "no xml": "hello",
    "another tag": "<x></x>",
    "truncated": voc_xml(voc_object())[:-20],
    "entities": '<!DOCTYPE a [<!ENTITY b "c">]>' + voc_xml(voc_object()),
    "entities in UTF-16": ('<!DOCTYPE a [<!ENTITY b "c">]>' + voc_xml(voc_object())).encode("utf-16"),
    "two boxes": voc_xml(voc_object(more="<bndbox><xmin>1</xmin></bndbox>")),
    "side with an underscore": voc_xml(voc_object(box=("1_0", 2, 30, 40))),
    "no name": voc_xml(voc_object("")),
    "no box": voc_xml("<object><name>cat</name></object>"),
    "three sides": voc_xml(voc_object(box=(1, 2, 3))),
    "side of words": voc_xml(voc_object(box=("a", 2, 3, 4))),
    "side of nan": voc_xml(voc_object(box=("nan", 2, 3, 4))),
    "turned around": voc_xml(voc_object(box=(20, 2, 3, 4))),
    "beyond the image": voc_xml(voc_object(box=(1, 2, 60, 4))),
    "negative": voc_xml(voc_object(box=(-3, 2, 6, 4))),
    "size of another image": voc_xml(voc_object(), "<width>40</width><height>50</height>"),
    "difficult of two": voc_xml(voc_object(more="<difficult>2</difficult>")),
    "missing": None,
}


@pytest.mark.parametrize("name", VOC)
def test_voc_file(tmp_path, name):
    tree = {f"JPEGImages/{stem}.jpg": photo(at) for at, stem in enumerate("ab")}
    tree |= {"Annotations/a.xml": VOC[name], "Annotations/b.xml": voc_xml(voc_object())}
    root = written(tmp_path / "data", {k: v for k, v in tree.items() if v is not None})
    skipped = packed(root, tmp_path)
    assert (skipped.key, "Annotations/a.xml" in skipped.reason) == ("JPEGImages/a.jpg", True)


# What a message quotes: the value as it stands in the file.
QUOTED_COCO = {
    "got '450'": {"area": "450"},
    "got '18'": {"category_id": "18"},
    "got '1'": {"iscrowd": "1"},
    "got 'x'": {"segmentation": "x"},
    "got '2'": {"bbox": [1, "2", 3, 4]},
    "got [5, 5, -2, 4]": {"bbox": [5, 5, -2, 4]},
    "got [0, 3]": {"keypoints": [1, 2, 3, 0, 0, 0]},
}


@pytest.mark.parametrize("quoted", QUOTED_COCO)
def test_messages_quote_values_of_coco(tmp_path, quoted):
    content = coco_content()
    content["annotations"][0].update(QUOTED_COCO[quoted])
    assert f"{quoted}: " in packed(coco(tmp_path / "data", content), tmp_path).reason


def test_messages_quote_a_size_of_coco(tmp_path):
    content = coco_content()
    content["images"][0]["width"] = "50"
    assert "got '50': " in packed(coco(tmp_path / "data", content), tmp_path).reason


def test_messages_quote_boxes_of_voc(tmp_path):
    root = voc(tmp_path / "data", has_masks=False)
    (root / "Annotations/y.xml").write_text(voc_xml(voc_object("cat", (30, 4, "20.50", 30))))
    with pytest.raises(SourceError, match=r"object 1: must have xmin <= xmax .*, got 30, 4, 20\.50, 30: "):
        pack(root, tmp_path / "x.fl", encode="keep", workers=1)


@pytest.mark.parametrize(
    "row", ["0 0.50 1.5 0.2 0.2", "0 0.5 0.5 -0.20 0.2", "0 0.5 0.5 1.9 0.5 1.9 1.70", "7.0 0.5 0.5 0.2 0.2"]
)
def test_messages_quote_rows_of_yolo(tmp_path, row):
    tree = {
        "images/a.jpg": photo(0),
        "labels/a.txt": row,
        "images/b.jpg": photo(1),
        "labels/b.txt": GOOD,
        "data.yaml": f"train: images\nnames: {NAMES}\n",
    }
    reason = packed(written(tmp_path / "data", tree), tmp_path).reason
    assert f"got '{row}': " in reason or "got 7.0: " in reason


def test_messages_quote_boxes_of_tables(tmp_path):
    table = "image,xmin,ymin,xmax,ymax,label\na.jpg,30,40.0,10,20,x\nb.jpg,1,2,3,4,x\n"
    root = written(tmp_path / "data", {"a.jpg": photo(0), "b.jpg": photo(1), "t.csv": table})
    assert "got 30, 40.0, 10, 20: " in packed(root / "t.csv", tmp_path).reason
