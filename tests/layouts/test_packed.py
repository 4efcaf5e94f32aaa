"""Packed objects: what `fastload info` counts, and what `fastload verify` compares."""

from types import SimpleNamespace

import numpy as np

from fastload import pack
from fastload.cli.main import main
from fastload.packing.verify import contradiction
from fastload.shards.schema import Field
from tests.layouts.samples import yolo


def test_info_counts_objects_and_classes(tmp_path, capsys):
    pack(yolo(tmp_path / "data"), tmp_path / "x.fl", encode="keep", workers=1)
    assert main(["info", str(tmp_path / "x.fl/train.fl")]) == 0
    assert "objects     3 in 2 of 2 records: cat 1, owl 1, dog 1" in capsys.readouterr().out


def test_the_printed_program_loads_objects_in_lists(tmp_path, capsys):
    assert main(["pack", str(yolo(tmp_path / "data")), str(tmp_path / "x.fl"), "--quiet"]) == 0
    assert main(["pack", str(tmp_path / "data"), str(tmp_path / "y.fl"), "--workers", "1"]) == 0
    program = capsys.readouterr().out.split("\n\n")[1]
    loaded: dict = {}
    exec(program, loaded)
    _, targets = next(iter(loaded["loader"]))
    assert sum(len(target["boxes"]) for target in targets) == 3


def test_verify_reports_objects_that_do_not_fit_together():
    fields = (Field("image", "image", encoding="keep"), Field.boxes("xyxy"), Field.labels())
    manifest = SimpleNamespace(fields=fields, classes=("a",), image_shape=None)

    class Record(dict):
        key = "x"

        def image_shape(self, name="image"):
            return (0, 0, 0)

    boxes = np.zeros((2, 4))
    too_few = contradiction(Record(boxes=boxes, labels=np.zeros(1, np.int64)), manifest, {"x"})
    no_class = contradiction(Record(boxes=boxes, labels=np.array([0, 1])), manifest, {"x"})
    right = contradiction(Record(boxes=boxes, labels=np.array([0, 0])), manifest, {"x"})
    assert ("2 in boxes, 1 in labels" in too_few, "0 to 0" in no_class, right) == (True, True, None)
