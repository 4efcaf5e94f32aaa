"""Examining data without a training."""

import json

import pytest

import fastload
from fastload.doctor.findings import DataStorage, LoaderTrial, MachineState, Sampled
from fastload.doctor.findings import TrainingMeasurements as Training
from fastload.doctor.folder import diagnose_data, examine_data
from fastload.loader.clock import LoadTimes
from tests.commands import run
from tests.doctor.situations import make_photos
from tests.folders import encoded, pixels


def measured(category="decode", cpu_s=8.0):
    """Two workers that load 400 samples/s in 100 batches of 32."""
    return Training(
        MachineState(2.0, 2),
        num_workers=2,
        batch_size=32,
        batches=100,
        waits=99,
        waiting_s=8.0,
        steps=100,
        stepping_s=0.001,
        work=LoadTimes(100, 3200, 16.0, 2 * cpu_s, 0.0, 0.0),
        busiest_s=8.0,
        loading=(Sampled(category, "PIL", 8.0),),
        trials=(LoaderTrial("same", 2, 400.0, 0.0, 0.0), LoaderTrial("pack", 2, 4000.0, 0.0, 0.0, "tiled")),
        store=DataStorage(100_000, 100_000_000),
        persistent_workers=True,
        was_cut=True,
        epoch_batches=3125,
        folder="photos",
    )


def test_decoding_is_the_limit_and_packing_names_the_folder():
    diagnosis = diagnose_data(measured(), 100_000, is_warm=True)
    assert (diagnosis.side, diagnosis.verdict) == ("loading", "decoding")
    assert "2 workers gives 400 samples/s after the first epoch" in diagnosis.headline
    [fix] = diagnosis.fixes
    assert fix.action.startswith("fastload pack photos data.fl --encode tiled")
    assert fix.gain == pytest.approx(10)


def test_a_slow_disk_is_the_limit():
    diagnosis = diagnose_data(measured("read", cpu_s=1.0), 100_000, is_warm=False)
    assert diagnosis.verdict == "storage"
    assert "after the first epoch" not in diagnosis.headline


def test_a_few_images_do_not_matter():
    diagnosis = diagnose_data(measured(), 50, is_warm=True)
    assert (diagnosis.verdict, diagnosis.fixes) == ("little", ())


def test_images_under_other_names_are_examined_and_what_is_left_out_is_noted(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}").write_bytes(encoded(pixels(number), ".webp"))
    (tmp_path / "notes.txt").write_text("none of them")
    [found] = examine_data(tmp_path)
    assert "4 samples" in found.diagnosis.evidence[0]
    assert found.diagnosis.evidence[-1] == "left out, not an image: 1 file (1 .txt)"


def test_images_that_cannot_be_decoded_are_skipped(tmp_path):
    photos = make_photos(tmp_path / "photos", 6, 64, 64)
    (photos / "0003.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image")
    [found] = examine_data(photos)
    assert found.measured.trial("same").samples_per_s > 0


def test_a_folder_and_its_packed_dataset_are_examined(tmp_path):
    photos = make_photos(tmp_path / "photos", 40, 240, 320)
    encoding = fastload.pack(photos, tmp_path / "photos.fl", workers=1).encoding
    for path, packed in ((photos, None), (tmp_path / "photos.fl", encoding)):
        done = run("doctor", "--json", "--html", tmp_path / "page.html", path)
        assert done.returncode == 0, done.stderr
        [part] = json.loads(done.stdout)["parts"]
        assert part["name"] == str(path)
        assert part["measurements"]["store"]["samples"] == 40
        assert part["measurements"]["encoding"] == packed
        assert part["loading_per_s"] > 0
        assert "<svg" in (tmp_path / "page.html").read_text()
        chosen = f"'fastload pack --encode auto' chooses {encoding}"
        assert any(text.startswith(chosen) for text in part["evidence"]) == (packed is None)


def test_the_files_are_packed_as_packing_chooses(tmp_path):
    photos = make_photos(tmp_path / "photos", 60, 480, 640)
    [found] = examine_data(photos)
    encoding = fastload.pack(photos, tmp_path / "photos.fl", workers=1).encoding
    assert found.measured.trial("pack").detail.startswith(encoding)
