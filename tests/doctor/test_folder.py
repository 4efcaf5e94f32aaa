"""Examining data that nobody trains on yet."""

import json

import fastload
from fastload.doctor.findings import DataStorage, MachineState
from fastload.doctor.folder import DataMeasurements, diagnose_data, examine_data
from tests.commands import run
from tests.doctor.situations import make_photos
from tests.folders import encoded, pixels


def measured(random_per_s=5000.0, samples=100_000, available_bytes=4 << 30, **changes):
    size_bytes = samples * 100_000
    store = DataStorage(samples, size_bytes, "nvme, ext4", True, random_per_s, 2 * random_per_s, 9000, 1e-4)
    values = {
        "way": "PIL",
        "sample_s": 2e-3,
        "machine": MachineState(8.0, 8, available_bytes=available_bytes),
        "store": store,
        "decoding": {"OpenCV": 1e-3, "PIL": 2e-3, "raw": 1e-4},
        "encoding": "raw",
    }
    return DataMeasurements("photos", samples, 10, **{**values, **changes})


def test_a_fast_disk_leaves_decoding():
    diagnosis = diagnose_data(measured())
    assert diagnosis.verdict == "decoding"
    gains = {fix.kind: fix.gain for fix in diagnosis.fixes}
    assert gains["pack"] > gains["decoder"] > 1


def test_a_slow_disk_is_the_limit():
    assert diagnose_data(measured(random_per_s=50.0)).verdict == "storage"


def test_a_slow_disk_is_none_after_the_first_epoch_where_memory_holds_the_data():
    diagnosis = diagnose_data(measured(random_per_s=50.0, available_bytes=64 << 30))
    assert diagnosis.verdict == "decoding"
    assert "after the first epoch" in diagnosis.headline


def test_a_few_images_do_not_matter():
    assert diagnose_data(measured(samples=50)).verdict == "little"


def test_images_under_other_names_are_examined_and_what_is_left_out_is_noted(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}").write_bytes(encoded(pixels(number), ".webp"))
    (tmp_path / "notes.txt").write_text("none of them")
    [measured] = examine_data(tmp_path)
    assert (measured.samples, measured.way) == (4, "PIL")
    assert measured.notes == ("left out, no image: 1 file (1 .txt)",)


def test_a_folder_and_what_is_packed_of_it_are_examined(tmp_path):
    photos = make_photos(tmp_path / "photos", 40, 240, 320)
    fastload.pack(photos, tmp_path / "photos.fl", encode="raw", workers=1)
    for path, way in ((photos, "PIL"), (tmp_path / "photos.fl", "raw")):
        done = run("doctor", "--json", "--html", tmp_path / "page.html", path)
        assert done.returncode == 0, done.stderr
        [part] = json.loads(done.stdout)["parts"]
        assert part["measurements"]["samples"] == 40
        assert part["measurements"]["way"] == way
        assert part["measurements"]["sample_s"] > 0
        assert "<svg" in (tmp_path / "page.html").read_text()


def test_the_encoding_is_the_one_that_packing_chooses(tmp_path):
    photos = make_photos(tmp_path / "photos", 8, 64, 64)
    [measured] = examine_data(photos)
    assert measured.encoding == fastload.pack(photos, tmp_path / "photos.fl", workers=1).encoding
    assert measured.decoding[measured.encoding] > 0
