"""What is advised, and what each thing gains."""

import dataclasses

import pytest

from fastload.loader.diagnosis import Measurements, diagnose
from fastload.loader.diagnosis.measurements import Decoding, Limits, Seen, Store
from tests.loader.diagnosis.measured import CPUS, epoch, seen


def fixes_of(measured):
    return {fix.kind: fix for fix in diagnose(measured).fixes}


def test_lasting_workers_are_advised_to_a_model_that_starts_them_each_epoch():
    measured = Measurements(
        epoch(waiting_s=0.1, stepping_s=9.9, first_wait_s=5.0, busy_s=1.0), CPUS, epochs=5
    )
    diagnosis = diagnose(measured)
    assert diagnosis.verdict == "model"
    [fix] = [fix for fix in diagnosis.fixes if fix.kind == "persistent workers"]
    assert fix.gain == pytest.approx(15 / 11, rel=0.02)


def test_a_quota_is_named_beside_a_model():
    few = dataclasses.replace(CPUS, usable_cpus=1.0, cpus=8)
    measured = Measurements(epoch(waiting_s=0.1, stepping_s=9.9, busy_s=1.0), few, training_cpu_s=20.0)
    assert fixes_of(measured)["quota"].gain > 1.5


def test_tiny_data_without_workers_takes_what_its_quickest_batches_and_steps_take():
    slow = (4e-3, 1e-3, 1e-3, 1e-3)
    times = epoch(waiting_s=0.05, stepping_s=0.175, first_wait_s=3.0, busy_s=0.4)
    times = dataclasses.replace(times, steps_s=25 * slow)
    measured = Measurements(times, CPUS, epochs=20, quickest_s=5e-4)
    assert fixes_of(measured)["no workers"].gain == pytest.approx(3.225 / 0.15, rel=0.01)
    unsaid = dataclasses.replace(measured, quickest_s=None)
    assert fixes_of(unsaid)["no workers"].gain == pytest.approx(3.225 / (0.1 + 0.8), rel=0.01)


def test_fewer_log_writes_name_all_that_is_counted():
    works = tuple(Seen("work", f"train.py:{line} log()", 2.5) for line in (1, 2, 3))
    times = epoch(waiting_s=0.1, stepping_s=9.9, busy_s=1.0)
    measured = Measurements(times, CPUS, training=(*works, *seen(model=2)))
    assert diagnose(measured).verdict == "main thread"
    action = fixes_of(measured)["fewer log writes"].action
    assert "ten times less often than now" in action
    assert all(f"train.py:{line}" in action for line in (1, 2, 3))


def test_what_normalises_can_move_to_the_device():
    loading = (
        Seen("transform", "train.py:4 self.transform(img) → Normalize", 5.0),
        Seen("transform", "train.py:4 self.transform(img) → ToTensor", 3.0),
        Seen("transform", "train.py:4 self.transform(img) → Resize", 2.0),
    )
    measured = Measurements(epoch(), dataclasses.replace(CPUS, device="cuda"), loading=loading)
    assert fixes_of(measured)["device"].gain == pytest.approx(5, rel=0.05)


def test_full_descriptors_have_their_own_fixes():
    measured = Measurements(epoch(), CPUS, error="RuntimeError: received 0 items of ancdata")
    diagnosis = diagnose(measured)
    assert [fix.kind for fix in diagnosis.fixes] == ["open files", "sharing strategy"]
    assert "ulimit -n" in diagnosis.headline


def stored(kind="network, nfs4", **limits):
    store = Store(1000, 10**9, kind, True, 200.0, 200.0, 1e8, 9000.0, 5e-3)
    return Measurements(epoch(cpu_s=1.0), CPUS, store=store, limits=Limits(available_bytes=10**10, **limits))


def test_the_kernel_keeps_small_data_of_a_local_disk_by_itself():
    assert "cache" in fixes_of(stored())
    assert "cache" not in fixes_of(stored("nvme, ext4"))
    assert any("page cache keeps them" in text for text in diagnose(stored("nvme, ext4")).evidence)


def test_what_was_hardly_seen_beside_a_slow_disk_is_still_to_be_computed():
    slow = dataclasses.replace(stored(), times=epoch(0, cpu_s=1.0), loading=seen(read=9.99, decode=0.01))
    decoding = Decoding({"PIL": 1e-3}, {}, 240, 320)
    without, with_it = (
        fixes_of(dataclasses.replace(slow, decoding=each))["cache"].gain for each in (None, decoding)
    )
    assert with_it < without


@pytest.mark.parametrize(("free", "is_copied"), [(None, False), (64 << 20, False), (2 * 10**9, True)])
def test_files_are_copied_to_shared_memory_only_where_they_fit(free, is_copied):
    action = fixes_of(stored(shared_memory_free_bytes=free))["cache"].action
    assert ("/dev/shm" in action) == is_copied
    assert 'cache="auto"' in action


def test_opencvs_threads_take_cpus_from_workers_and_torchs_only_spin():
    def workers(line):
        loading = (Seen("transform", line, 8.0),)
        two = dataclasses.replace(CPUS, usable_cpus=2.0, cpus=2)
        return fixes_of(Measurements(epoch(0), two, loading=loading, helping_cpu_s=8.0))["workers"].gain

    assert workers("train.py:9 image.div(255)") > 1.5
    assert workers("train.py:9 cv2.resize(image, (64, 64))") < 1.3


def test_images_of_pils_are_made_anew_of_what_was_packed():
    decoding = Decoding({"PIL": 0.0025, "raw": 0.0001}, {"raw": 10**6}, 400, 500)
    measured = Measurements(epoch(0), CPUS, loading=seen(decode=10), decoding=decoding)
    plain, with_pil = (
        fixes_of(dataclasses.replace(measured, transforms_pil=flag))["pack"].gain for flag in (False, True)
    )
    assert with_pil < 0.9 * plain


def test_what_later_epochs_no_longer_wait_for_is_kept_already():
    for waits_s, is_kept in (((0.1, 0.02, 0.03), True), ((0.1, 0.09), False), ((0.1,), False)):
        measured = dataclasses.replace(stored(), epoch_waits_s=waits_s)
        assert ("cache" not in fixes_of(measured)) == is_kept
        assert any("Only the first epoch" in text for text in diagnose(measured).evidence) == is_kept


def test_a_sample_of_several_images_is_decoded_as_several_in_every_way():
    def tiled(images):
        sample_s = 8 / 3200
        ways = {"PIL": sample_s / images, "tiled": sample_s / images / 2}
        decoding = Decoding(ways, {"tiled": 10**5}, 400, 500)
        return fixes_of(Measurements(epoch(0), CPUS, loading=seen(decode=10), decoding=decoding))["pack"]

    assert "decoding an image takes" in tiled(1).why
    assert "decoding a sample's several images takes" in tiled(4).why
    assert tiled(4).gain == pytest.approx(tiled(1).gain)


def test_files_that_hold_many_samples_are_cached_as_files_or_not_at_all():
    def cache(free, encoding=None):
        measured = stored(shared_memory_free_bytes=free)
        store = dataclasses.replace(measured.store, are_containers=True)
        setting = dataclasses.replace(CPUS, encoding=encoding)
        return fixes_of(dataclasses.replace(measured, store=store, setting=setting)).get("cache")

    assert "copy the files to /dev/shm" in cache(2 * 10**9).action
    assert "auto" not in cache(2 * 10**9).action
    assert cache(64 << 20) is None
    assert 'PackedDataset(…, cache="auto")' in cache(64 << 20, "keep").action


def test_a_cache_does_not_end_the_sleep_of_transforms():
    measured = dataclasses.replace(stored(), loading=seen(read=3, transform=7))
    assert fixes_of(measured)["cache"].gain < 1.5


def test_more_workers_are_a_bound_where_a_steps_own_threads_would_wait_for_cpus():
    two = dataclasses.replace(CPUS, usable_cpus=2.0, cpus=2)
    workers = fixes_of(Measurements(epoch(0), two))["workers"]
    assert not workers.is_bound
    threaded = fixes_of(Measurements(epoch(0), dataclasses.replace(two, threads=2)))["workers"]
    assert threaded.is_bound
    assert "torch.set_num_threads(1)" in threaded.action
    on_gpu = fixes_of(Measurements(epoch(0), dataclasses.replace(two, threads=2, device="cuda")))["workers"]
    assert not on_gpu.is_bound


def test_resizing_takes_less_of_images_that_were_shrunk():
    decoding = Decoding({"PIL": 0.02}, {}, 3000, 4000, shrunk_s=0.001)

    def gain(line):
        loading = (*seen(decode=6), Seen("transform", f"train.py:9 {line}", 4.0))
        measured = Measurements(epoch(), CPUS, loading=loading, decoding=decoding)
        return fixes_of(measured)["shrink"].gain

    assert gain("image.resize((224, 224))") > 2 * gain("augmented(image)")


def photos(places, num_workers=2):
    """Images that take PIL 3.125 ms and OpenCV 2.5 ms on an idle core, and two workers twice as long."""
    decoding = Decoding({"PIL": 3.125e-3, "OpenCV": 2.5e-3, "raw": 1e-4}, {"raw": 6e5}, 400, 500)
    loading = tuple(Seen("decode", place, seconds) for place, seconds in places)
    times = epoch(num_workers, busy_s=20.0 / max(1, num_workers), stepping_s=0.1)
    return Measurements(times, CPUS, loading=loading, decoding=decoding)


@pytest.mark.parametrize(("workers", "gain"), [(2, 6.25 / 5), (0, 6.25 / 2.5)])
def test_another_way_of_decoding_is_slowed_down_as_the_present_one_is(workers, gain):
    fixes = fixes_of(photos([("train.py:3 self.read(path) → PIL", 10.0)], workers))
    assert fixes["decoder"].gain == pytest.approx(gain, rel=0.02)


def test_what_the_lines_say_decodes_is_what_decodes():
    assert "decoder" not in fixes_of(photos([("train.py:3 cv2.imdecode(data, 1)", 10.0)]))


def test_what_is_freed_between_samples_belongs_to_what_made_it():
    loading = (Seen("decode", "train.py:3 cv2.imdecode(data, 1)", 9.0), Seen("transform", "", 1.0))
    whole = dataclasses.replace(photos([]), loading=loading)
    assert not any("transforms" in text for text in diagnose(whole).evidence)
    opaque = dataclasses.replace(whole, loading=loading[1:])
    assert diagnose(opaque).verdict == "transforms"


def test_a_clock_of_collating_is_believed_before_the_looks_at_it():
    measured = photos([("train.py:3 cv2.imdecode(data, 1)", 9.0)])
    looked = dataclasses.replace(measured, loading=(*measured.loading, *seen(collate=1.0)))
    timed = dataclasses.replace(looked, times=epoch(collate_s=0.1))
    assert any("making batches 10%" in text for text in diagnose(looked).evidence)
    assert any("making batches 1%" in text for text in diagnose(timed).evidence)


@pytest.mark.parametrize(("place", "gain"), [("", 4.0), ("train.py:9 my_collate(samples)", 1.0)])
def test_what_torch_collates_is_made_in_slots_and_what_the_user_collates_is_not(place, gain):
    loading = (Seen("collate", place, 9.0), Seen("decode", "train.py:3 cv2.imdecode(data, 1)", 1.0))
    times = epoch(waiting_s=9.0, stepping_s=1.0)
    fixes = fixes_of(Measurements(times, CPUS, loading=loading))
    assert fixes["loader"].gain > gain if gain > 1 else "loader" not in fixes
