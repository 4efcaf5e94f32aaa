"""Examining data without a training run."""

import json
import os
from dataclasses import replace

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
        store=DataStorage(100_000, 100_000_000, "ext4"),
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


def test_loading_without_workers_is_not_advised_before_there_is_a_training():
    trials = (LoaderTrial("same", 2, 400.0, 0.0, 0.0), LoaderTrial("workers", 0, 800.0, 0.0, 0.0))
    assert diagnose_data(replace(measured(), trials=trials), 100_000, is_warm=True).fixes == ()


def test_a_slow_rate_is_not_printed_as_zero():
    slow = replace(measured(), trials=(LoaderTrial("same", 2, 0.3, 0.0, 0.0),))
    assert "gives 0.3 samples/s" in diagnose_data(slow, 100_000, is_warm=True).headline


def test_a_slow_disk_is_the_limit():
    diagnosis = diagnose_data(measured("read", cpu_s=1.0), 100_000, is_warm=False)
    assert diagnosis.verdict == "storage"
    assert "after the first epoch" not in diagnosis.headline


def test_a_few_images_do_not_matter():
    diagnosis = diagnose_data(measured(), 50, is_warm=True)
    assert (diagnosis.verdict, diagnosis.fixes) == ("little", ())


@pytest.fixture
def _hasty(monkeypatch):
    """Watches each loader for a moment."""
    monkeypatch.setattr("fastload.doctor.folder._WATCHED_S", 0.2)


@pytest.mark.usefixtures("_hasty")
def test_images_under_other_names_are_examined_and_what_is_left_out_is_noted(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}").write_bytes(encoded(pixels(number), ".webp"))
    (tmp_path / "notes.txt").write_text("none of them")
    [found] = examine_data(tmp_path)
    assert "4 samples" in found.diagnosis.evidence[0]
    assert found.diagnosis.evidence[-1] == "left out, not an image: 1 file (1 .txt)"


@pytest.mark.usefixtures("_hasty")
def test_images_that_cannot_be_decoded_are_the_first_finding(tmp_path):
    photos = make_photos(tmp_path / "photos", 6, 64, 64)
    for name in ("0003.jpg", "0004.jpg"):
        (photos / name).write_bytes(b"\xff\xd8\xff\xe0 no image")
    [found] = examine_data(photos)
    assert found.diagnosis.samples_per_s > 0
    [fix] = found.diagnosis.fixes
    assert (fix.kind, fix.gain) == ("damage", None)
    assert "2 of 6 cannot be read" in fix.action
    assert str(photos / "0003.jpg") in fix.why


@pytest.mark.usefixtures("_hasty")
def test_files_that_a_table_names_and_that_are_missing_are_a_finding(tmp_path):
    make_photos(tmp_path, 1, 64, 64)
    (tmp_path / "t.csv").write_text("image,label\n0000.jpg,a\nmissing.jpg,b\n")
    [found] = examine_data(tmp_path / "t.csv")
    [fix] = found.diagnosis.fixes
    assert "1 of 2 cannot be read" in fix.action
    assert "missing.jpg" in fix.why


@pytest.mark.usefixtures("_hasty")
def test_splits_are_packed_alike_as_packing_chooses(tmp_path):
    make_photos(tmp_path / "train" / "a", 8, 240, 320)
    for number in range(4):
        folder = tmp_path / "val" / "a"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(encoded(pixels(number, 240, 320), ".png"))
    chosen = fastload.pack(tmp_path, tmp_path.with_suffix(".fl"), workers=1).encoding
    for found, split in zip(examine_data(tmp_path), ("train", "val"), strict=True):
        assert f"auto' chooses {chosen}" in found.diagnosis.evidence[1]
        assert found.measured.folder == str(tmp_path / split)  # which packing and FolderDataset take


@pytest.mark.usefixtures("_hasty")
def test_images_with_annotations_are_examined(tmp_path):
    make_photos(tmp_path / "images" / "train", 3, 64, 64)
    (tmp_path / "labels" / "train").mkdir(parents=True)
    (tmp_path / "labels" / "train" / "0000.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "data.yaml").write_text("train: images/train\nnames: [cat]\n")
    [found] = examine_data(tmp_path / "data.yaml")
    assert "3 samples" in found.diagnosis.evidence[0]
    assert found.measured.folder == str(tmp_path / "data.yaml")


def test_if_no_image_can_be_read_the_first_error_is_named(tmp_path):
    (tmp_path / "0.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image")
    with pytest.raises(fastload.SourceError, match=r"none of 1: .*0\.jpg"):
        examine_data(tmp_path)


@pytest.mark.usefixtures("_hasty")
def test_nothing_is_tried_on_data_that_load_at_once(tmp_path):
    [found] = examine_data(make_photos(tmp_path, 3, 64, 64))
    assert found.diagnosis.verdict == "little"
    assert found.measured.trials == ()


@pytest.mark.soak
def test_options_may_follow_the_path_of_data(tmp_path):
    photos = make_photos(tmp_path / "photos", 3, 64, 64)
    done = run("doctor", photos, "--quiet", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["verdict"] == "little"
    for words in (["other"], ["--steps", "3"], ["--quite"]):
        done = run("doctor", photos, *words)
        assert done.returncode == 2
        assert words[0].removesuffix("e") in done.stderr


def test_a_folder_and_its_packed_dataset_are_examined(tmp_path):
    photos = make_photos(tmp_path / "photos", 40, 240, 320)
    encoding = fastload.pack(photos, tmp_path / "photos.fl", workers=1).encoding
    for path, packed in ((photos, None), (tmp_path / "photos.fl", encoding)):
        done = run("doctor", "--json", path)
        assert done.returncode == 0, done.stderr
        [part] = json.loads(done.stdout)["parts"]
        assert part["name"] == str(path)
        assert part["measurements"]["store"]["samples"] == 40
        assert part["measurements"]["encoding"] == packed
        assert part["loading_per_s"] > 0
        chosen = f"'fastload pack --encode auto' chooses {encoding}"
        assert any(text.startswith(chosen) for text in part["evidence"]) == (packed is None)


@pytest.mark.soak
def test_annotated_files_are_packed_as_packing_chooses_and_need_their_annotations(tmp_path):
    photos = make_photos(tmp_path / "photos", 60, 480, 640)
    many = tmp_path / "images"  # so that loading them takes long enough to matter
    many.mkdir()
    (tmp_path / "data.yaml").write_text("train: images\nnames: [cat]\n")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "0.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    for number in range(3000):
        os.link(photos / f"{number % 60:04d}.jpg", many / f"{number}.jpg")
    [found] = examine_data(tmp_path / "data.yaml")
    encoding = fastload.pack(photos, tmp_path / "photos.fl", workers=1).encoding
    assert found.measured.trial("pack").encoding == encoding
    assert found.measured.trial("decoder") is None  # FolderDataset has no boxes
