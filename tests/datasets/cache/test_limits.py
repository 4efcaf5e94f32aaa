"""A cache stays within the memory available, reports why it stops, and detects damage."""

import os
import subprocess
import sys

import numpy as np
import pytest

from fastload import FolderDataset, PackedDataset, pack
from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.sharing import open_store, store_folder
from fastload.datasets.cache.store import Opening
from fastload.system.memory import margin_of, memory_margin, memory_room, tmpfs_room
from fastload.system.units import format_size
from tests.datasets.cache.programs import ROOT, plenty
from tests.folders import class_folders

MIB = 1 << 20


class Memory:
    """Given readings of available memory; the last one repeats."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def __call__(self) -> int:
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]


@pytest.fixture
def folder(tmp_path):
    return class_folders(tmp_path / "photos", 40)


def index_bytes(count, fixed_bytes):
    """Return the size of a store without its area."""
    folder = store_folder("/tmp")
    return Opening("ram", "encoded", folder, "photos", "a" * 32, count, fixed_bytes, 0).area_offset


def read_all(dataset):
    for index in range(len(dataset)):
        dataset[index]


class TestRoom:
    def test_half_of_the_samples_is_the_hit_ratio(self, folder, place):
        dataset = FolderDataset(folder)
        half = dataset.source.size_bytes() // 2
        index = index_bytes(40, 12)
        report = dataset.use_cache(Cache("ram", place), room=Memory(half + index, 1 << 33))
        assert report.share == pytest.approx(0.5, abs=0.01)
        read_all(dataset)
        assert "reached its size limit" in dataset.cached.stopped
        ready = dataset.cached.ready
        assert ready == pytest.approx(0.5, abs=0.05)
        for _ in range(2):
            before = dataset.cached.hits
            read_all(dataset)
            assert (dataset.cached.hits - before) / 40 == ready

    def test_cached_and_uncached_pixels_form_one_batch(self, tmp_path, place):
        root = class_folders(tmp_path / "equal", 1)
        photo = next(root.rglob("*.jpg"))
        for number in range(1, 40):
            os.link(photo, photo.with_name(f"{number:04d}.jpg"))
        pack(root, tmp_path / "photos.fl", encode="raw", workers=1)
        dataset = PackedDataset(tmp_path / "photos.fl")
        plain = PackedDataset(tmp_path / "photos.fl")
        index = index_bytes(40, 53)
        pixels = 20 * 24 * 32 * 3
        dataset.use_cache(Cache("ram", place), room=Memory(pixels + index, 1 << 33))
        for _ in range(2):
            for (image, label), (other, expected) in zip(
                dataset.__getitems__(range(40)), plain.__getitems__(range(40)), strict=True
            ):
                assert (image == other).all()
                assert label == expected
        assert 0.3 < dataset.cached.ready < 0.6

    def test_no_room_is_no_cache_with_a_reason(self, folder, place):
        report = FolderDataset(folder).use_cache(Cache("ram", place), room=Memory(0))
        assert report.kind is None
        assert report.reason == (
            f"no cache: {format_size(memory_margin())} of the memory must stay free, which leaves no room"
        )

    def test_cache_stops_when_others_take_the_memory(self, folder, place):
        dataset = FolderDataset(folder)
        dataset.use_cache(Cache("ram", place), room=Memory(200 * MIB, 0))
        read_all(dataset)
        assert dataset.cached.ready == 0
        assert "less memory free than the margin" in dataset.cached.stopped

    @pytest.mark.parametrize(("total_gib", "margin_gib"), [(2, 1), (10, 1), (20, 2), (100, 10), (1000, 100)])
    def test_margin_is_a_tenth_and_at_least_a_gibibyte(self, total_gib, margin_gib):
        assert margin_of(total_gib << 30) == pytest.approx(margin_gib << 30)

    def test_tenth_of_a_tmpfs_stays_free(self, tmp_path):
        status = os.statvfs(tmp_path)
        total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
        # Other programs write meanwhile: within 2 % of the file system.
        assert tmpfs_room(str(tmp_path)) == pytest.approx(max(0, free - total / 10), abs=total / 50)
        assert tmpfs_room(str(tmp_path / "missing")) == 0

    def test_no_memory_is_no_room(self):
        assert memory_room(Memory(1 << 29)) == 0


_IN_A_SMALL_TMPFS = """
import sys
from fastload.datasets.cache.sharing import open_store, store_folder
from fastload.datasets.cache.store import Opening
from tests.datasets.cache.programs import plenty
import fastload.datasets.cache.store as module
if sys.argv[2] == "unforeseen":
    module.tmpfs_room = lambda folder: 1 << 40  # another process is quicker
folder = store_folder(sys.argv[1])
opening = Opening("tmpfs", "encoded", folder, "photos", "a" * 32, 1000, 0, 1 << 30, plenty)
store = open_store(opening)
stored = sum(store.put(index, bytes([index % 250]) * 100_000) for index in range(1000))
assert all(store.has(index) for index in range(stored))
print(stored, store.why_closed)
"""


@pytest.mark.parametrize("how", ["foreseen", "unforeseen"])
def test_full_tmpfs_stops_the_cache_and_kills_no_process(tmp_path, unshare, how):
    (tmp_path / "small").mkdir()
    mount = f'mount -t tmpfs -o size=40m tmpfs "{tmp_path}/small" && exec "$@"'
    command = [*unshare, "sh", "-c", mount, "sh", sys.executable, "-c", _IN_A_SMALL_TMPFS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(tmp_path / "small"), how], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr
    stored, _, reason = done.stdout.partition(" ")
    assert 100 < int(stored) < 420
    assert "no more space" in reason


_AUTO = """
import sys, fastload
from fastload.datasets.cache.choosing import open_cache
from fastload.datasets.cache.options import CacheReport
from fastload.system.memory import memory_room
dataset = fastload.FolderDataset(sys.argv[1], cache="auto")
print(dataset.cached.reason)
loader = fastload.DataLoader(dataset, 4, cache="auto", num_workers=0, collate_fn=list)
assert len([*loader]) == 3
print(loader.plan.cache.value, loader.plan.cache.reason)
chosen = CacheReport("ram", "encoded", 1.0, "chosen")
_, opened = open_cache(fastload.Cache("auto"), dataset._originals(), lambda: chosen, memory_room)
print(opened.kind, opened.reason)
try:
    fastload.FolderDataset(sys.argv[1], cache="tmpfs")
except fastload.OptionError:
    print("refused")
"""


def outcomes_of_auto(tmp_path, unshare, mount):
    """Return what `auto` says where a file system is mounted on /dev/shm in a certain way."""
    class_folders(tmp_path / "photos", 12)
    command = [*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", _AUTO]
    done = subprocess.run([*command, str(tmp_path / "photos")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_auto_uses_no_cache_where_shared_memory_cannot_be_written_to(tmp_path, unshare):
    own, plan, chosen, explicit = outcomes_of_auto(tmp_path, unshare, "mount -t tmpfs -o ro tmpfs /dev/shm")
    reason = "no cache: /dev/shm: a cache's folder must exist and be writable"
    assert own.startswith(reason)
    assert plan.startswith(f"None {reason}")
    assert chosen.startswith(f"None {reason}")
    assert explicit == "refused"


def test_auto_uses_no_cache_where_another_user_has_prepared_its_place(tmp_path, unshare):
    place = f"/dev/shm/fastload-{os.getuid()}"
    mount = f"mount -t tmpfs tmpfs /dev/shm && ln -s /tmp {place}"
    _, plan, chosen, explicit = outcomes_of_auto(tmp_path, unshare, mount)
    assert plan.startswith("None no cache")
    assert chosen.startswith(f"None no cache: {place}: must be a folder that only you can write to")
    assert explicit == "refused"


def test_pipe_in_the_place_of_a_lock_does_not_hang(folder, place):
    own = place / f"fastload-{os.getuid()}"
    dataset = FolderDataset(folder, cache=Cache("ram", place))
    users = own / f"{dataset._cache.store.opening.name}.lock"
    dataset.close_cache()
    own.mkdir(mode=0o700)
    os.mkfifo(users)
    report = FolderDataset(folder, cache=Cache("ram", place)).cached
    assert report.reason == "no cache: it could not be opened (it is of another kind)"
    users.unlink()
    own.rmdir()


class TestTampering:
    @pytest.mark.parametrize("form", ["encoded", "decoded"])
    def test_flipped_byte_is_detected_and_the_source_is_read(self, folder, tmp_path, place, form):
        pack(folder, tmp_path / "photos.fl", encode="keep", workers=1)
        for kind, path in ((FolderDataset, folder), (PackedDataset, tmp_path / "photos.fl")):
            dataset, plain = kind(path, cache=Cache("ram", place, form)), kind(path)
            read_all(dataset)
            store = dataset._cache.store
            store._writable[int(store._index["offset"][7]) + 60] ^= 1
            store._seen[:] = 0  # as in a process that has not read it yet
            before = dataset.cached.misses
            for index in (6, 7, 8):
                assert (dataset[index][0] == plain[index][0]).all()
            assert dataset.cached.misses == before + 1
            assert not store.has(7)
            dataset.close_cache()

    def test_damaged_index_finds_no_record(self, place):
        folder = store_folder(place)
        store = open_store(Opening("ram", "encoded", folder, "photos", "a" * 32, 4, 0, MIB, plenty))
        assert store.put(0, b"x" * 1000)
        store._index["offset"][0] = 1 << 60
        assert not store.found(np.array([0])).any()

    def test_damaged_label_is_detected(self, folder, tmp_path, place):
        pack(folder, tmp_path / "photos.fl", encode="keep", workers=1)
        dataset = PackedDataset(tmp_path / "photos.fl", cache=Cache("ram", place))
        read_all(dataset)
        samples = dataset._cache
        samples.store._writable_fixed[5, samples._layout.fixed.fields["label"][1]] ^= 1
        samples.store._seen[:] = 0
        assert dataset[5][1] == PackedDataset(tmp_path / "photos.fl")[5][1]
