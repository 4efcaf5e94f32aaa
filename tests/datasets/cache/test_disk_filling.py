"""Filling of a cache on the disk: within its bound, once, and by a process that ends with its starter."""

import copy
import os
import shutil
import subprocess

import pytest
import torch

import fastload
import fastload.transforms as T
from fastload import Cache, DataLoader, FolderDataset
from fastload.datasets.cache.disk_filling import CopyPlace, fill_copy, form_that_fits
from fastload.sources.cacheable import CacheableFiles
from fastload.system.cache_folder import CacheFolder
from tests.commands import run_python, start_python
from tests.datasets.cache.programs import ROOT, is_alive, wait_for
from tests.datasets.reference import filled


class TestBound:
    @pytest.fixture
    def source(self, photos):
        files = FolderDataset(photos).source.files
        return CacheableFiles(files, files.folder, alike_only=False)

    @pytest.fixture
    def folder(self, caches):
        folder = CacheFolder(caches)
        folder.make()
        return folder

    def filled(self, source, folder, name, most_bytes=None):
        lock = folder.lock(name)
        try:
            fill_copy(source, CopyPlace(folder, name, "encoded", most_bytes), lambda: True)
        finally:
            lock.release()
        return folder.entry(name)

    def test_as_many_samples_are_stored_as_fit(self, photos, caches, no_process, source, folder):
        half = int(source.files.sizes_bytes.sum()) // 2
        dataset = FolderDataset(photos, T.CenterCrop(32), cache=Cache("disk", caches, size=half))
        disk = dataset._cache
        entry = self.filled(source, folder, disk.place.name, half)
        assert 0 < entry.samples < 12
        assert entry.size_bytes <= half
        assert entry.total == 24
        disk._next_check_s = 0.0
        assert torch.equal(
            filled(dataset, range(24))[0], filled(FolderDataset(photos, T.CenterCrop(32)), range(24))[0]
        )
        assert (dataset.cached.hits, dataset.cached.misses) == (entry.samples, 24 - entry.samples)
        assert dataset.cached.state == "complete"

    def test_the_longest_unused_is_removed_for_a_new_one(self, source, folder):
        first, second, third = (f"photos-{letter * 12}" for letter in "abc")
        size = self.filled(source, folder, first).size_bytes
        self.filled(source, folder, second)
        os.utime(folder.path / f"{second}.lock", (1, 1))
        most = int(2.5 * size)
        assert self.filled(source, folder, third, most).samples == 24
        assert {entry.name for entry in folder.entries()} == {first, third}

    def test_nothing_is_removed_for_one_that_can_never_fit(self, source, folder):
        first, second = (f"photos-{letter * 12}" for letter in "ab")
        self.filled(source, folder, first)
        with pytest.raises(fastload.PackError, match="there is no room"):
            self.filled(source, folder, second, 1000)
        assert folder.entry(first).state == "complete"

    def test_what_is_in_use_is_not_removed(self, source, folder):
        first, second = (f"photos-{letter * 12}" for letter in "ab")
        entry = self.filled(source, folder, first)
        reading = folder.lock(first, shared=True)
        assert folder.lock(first) is None
        with pytest.raises(fastload.PackError, match="there is no room"):
            self.filled(source, folder, second, entry.size_bytes + 1000)
        reading.release()
        assert self.filled(source, folder, second, entry.size_bytes * 2 - 1000).samples == 24
        assert [each.name for each in folder.entries()] == [second]

    def test_a_tenth_of_the_disk_stays_free(self, folder, monkeypatch):
        usage = shutil.disk_usage(folder.path)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(total=1000, free=350))
        assert folder.room_for("photos-" + "a" * 12, None) == 250
        assert folder.room_for("photos-" + "a" * 12, 100) == 100

    def test_other_files_in_the_folder_stay(self, source, folder):
        (folder.path / "mine.fl").mkdir()
        (folder.path / "mine.txt").write_text("mine")
        self.filled(source, folder, "photos-" + "a" * 12)
        folder.make_room("photos-" + "b" * 12, 1 << 60, None)
        assert sorted(os.listdir(folder.path)) == ["mine.fl", "mine.txt"]


@pytest.mark.parametrize(
    ("room_bytes", "memory_bytes", "form"),
    [(1000, 2000, "decoded"), (999, 2000, "encoded"), (1000, 1999, "encoded")],
)
def test_pixels_are_stored_where_they_fit_and_memory_can_hold_them(room_bytes, memory_bytes, form):
    assert form_that_fits(1000.0, room_bytes, lambda: memory_bytes) == form


class TestProcess:
    """The process that fills a cache."""

    def test_it_fills_in_the_background_and_ends(self, photos, caches):
        dataset = FolderDataset(photos, T.CenterCrop(32), cache=Cache("disk", caches))
        expected = filled(FolderDataset(photos, T.CenterCrop(32)), range(24))[0]
        process = dataset._cache._process
        other = FolderDataset(photos, cache=Cache("disk", caches))
        assert other._cache is dataset._cache
        loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=True)
        assert torch.equal(torch.cat([images for images, _ in loader]), expected)
        wait_for(lambda: dataset.cached.state == "complete")
        before = dataset.cached.hits

        def is_read_by_workers():
            assert torch.equal(torch.cat([images for images, _ in loader]), expected)
            return dataset.cached.hits >= before + 24

        wait_for(is_read_by_workers)
        assert "Cache on the disk: complete." in loader.report().evidence
        wait_for(lambda: process.poll() is not None)
        assert process.returncode == 0

    def test_its_priority_is_low(self):
        code = "import os; from fastload.datasets.cache import disk_filling; disk_filling.lower_priority(); "
        code += "print(os.nice(0))"
        done = run_python("-c", code, cwd=ROOT)
        assert int(done.stdout) > os.nice(0)

    def test_it_ends_with_its_dataset_and_the_next_one_goes_on(self, photos, caches):
        dataset = FolderDataset(photos, cache=Cache("disk", caches))
        process = dataset._cache._process.pid
        del dataset
        assert not is_alive(process)
        again = FolderDataset(photos, cache=Cache("disk", caches))
        wait_for(lambda: again.cached.state == "complete")

    def test_it_ends_with_a_program_that_is_killed(self, photos, caches):
        code = f"""
import time
from fastload import Cache, FolderDataset
dataset = FolderDataset({str(photos)!r}, cache=Cache("disk", {str(caches)!r}))
print(dataset._cache._process.pid, flush=True)
time.sleep(60)
"""
        with start_python("-c", code, stdout=subprocess.PIPE, cwd=ROOT) as program:
            process = int(program.stdout.readline())
            program.kill()
        wait_for(lambda: not is_alive(process))
        dataset = FolderDataset(photos, cache=Cache("disk", caches))
        wait_for(lambda: dataset.cached.state == "complete")

    def state_after_killing(self, photos, caches):
        """Return the state of a cache whose process was killed."""
        dataset = FolderDataset(photos, cache=Cache("disk", caches))
        dataset._cache._process.kill()
        dataset._cache._process.wait()
        dataset._cache._next_check_s = 0.0
        return dataset.cached.state

    def test_if_it_is_killed_the_next_run_resumes(self, photos, caches):
        state = self.state_after_killing(photos, caches)
        assert "was killed (signal 9); the next run resumes it" in state
        again = FolderDataset(photos, cache=Cache("disk", caches))
        wait_for(lambda: again.cached.state == "complete")

    def test_only_one_process_fills_it(self, photos, caches):
        folder = CacheFolder(caches)
        first = FolderDataset(photos, cache=Cache("disk", caches))
        disk = first._cache
        second = copy.copy(disk)
        second._process, second._next_check_s = None, 0.0
        second.refresh()
        assert second._process is None or folder.dataset(disk.place.name).is_dir()

    def test_without_room_it_is_given_up_with_one_warning(self, photos, caches, capfd):
        dataset = FolderDataset(photos, cache=Cache("disk", caches, size=1000))
        wait_for(lambda: dataset.cached.stopped)
        assert "there is no room: allow a larger size" in dataset.cached.state
        wait_for(lambda: dataset._cache._process.poll() is not None)
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(
            f"fastload: the cache of {photos} is given up, and training goes on without it"
        )
        (entry,) = CacheFolder(caches).entries()
        assert (entry.dataset, entry.samples, entry.total) == (str(photos), 0, 24)
        assert dataset[0][0].shape[0] == 3
        assert not list(caches.rglob("shard-*"))
