"""A cache on the disk: samples as without it, filled once, bounded, never read when half-made or stale."""

import itertools
import os
import pickle
import random
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import fastload
import fastload.transforms as T
from fastload import Cache, DataLoader, FolderDataset, OptionError, PackedDataset
from fastload.datasets.cache.disk_filling import fill_copy
from fastload.system.cache_folder import CacheFolder
from tests.datasets.cache.programs import ROOT
from tests.datasets.compiled.pipelines import PIPELINES as THEIR_PIPELINES
from tests.datasets.pipelines import PIPELINES
from tests.datasets.reference import check_against_plain, filled, folder_of
from tests.images.samples import exif, file_of, photo

INDICES = [5, 0, 23, 11, 5, 16, 7, 8]


def names_in(caches):
    return sorted(entry.name for entry in CacheFolder(caches).entries())


class TestEqual:
    @pytest.mark.parametrize("form", [None, "encoded", "decoded"])
    def test_photos(self, photos, on_disk, form):
        dataset = on_disk(FolderDataset(photos), form)
        for transform in PIPELINES.values():
            dataset.transform = transform
            check_against_plain(dataset, transform, INDICES)
        assert dataset.cached.hits
        assert not dataset.cached.misses

    def test_files_are_not_read(self, tmp_path, photos, on_disk):
        dataset = on_disk(FolderDataset(photos, PIPELINES["train"]))
        expected = filled(FolderDataset(photos, PIPELINES["train"]), INDICES)
        os.rename(photos, tmp_path / "away")
        try:
            images, labels = filled(dataset, INDICES)
        finally:
            os.rename(tmp_path / "away", photos)
        assert torch.equal(images, expected[0])
        assert torch.equal(labels, expected[1])

    @pytest.mark.parametrize("form", ["encoded", "decoded"])
    def test_exif_orientation_is_applied(self, tmp_path, on_disk, form):
        root = tmp_path / "turned"
        root.mkdir()
        for number in range(8):
            data = file_of(photo(30, 44, seed=number), exif=exif(number + 1))
            (root / f"{number}.jpg").write_bytes(data)
        options = {"transform": T.CenterCrop(30), "apply_orientation": True}
        expected = filled(FolderDataset(root, **options), range(8))[0]
        assert torch.equal(filled(on_disk(FolderDataset(root, **options), form), range(8))[0], expected)

    def test_reduced_while_decoding(self, photos, on_disk):
        options = {"transform": T.Compose([T.Resize(20), T.CenterCrop(16)]), "reducing_gap": 1.0}
        dataset = on_disk(FolderDataset(photos, **options))
        assert torch.equal(filled(dataset, INDICES)[0], filled(FolderDataset(photos, **options), INDICES)[0])

    @pytest.mark.parametrize("form", ["encoded", "decoded"])
    def test_compiled_image_folder(self, photos, on_disk, form):
        from torchvision.datasets import ImageFolder

        plain, ours = (fastload.compile(ImageFolder(str(photos))) for _ in range(2))
        on_disk(ours.images, form)
        for transform, _ in THEIR_PIPELINES.values():
            batches = []
            for dataset in (plain, ours):
                dataset.transform = transform
                torch.manual_seed(3)
                random.seed(3)
                batches.append(dataset.__getitems__(INDICES))
            for (image, label), (expected, wanted) in zip(*batches, strict=True):
                assert np.array_equal(np.asarray(image), np.asarray(expected))
                assert label == wanted
        assert ours.images.cached.hits
        assert not ours.images.cached.misses

    def test_what_is_not_read_alike_comes_from_the_file(self, tmp_path, on_disk, caches):
        from torchvision.datasets import ImageFolder

        (tmp_path / "mixed" / "a").mkdir(parents=True)
        formats = itertools.product(("bmp", "png", "jpg", "webp"), ("RGB", "L", "CMYK", "RGBA"))
        for suffix, mode in formats:
            if mode != "CMYK" or suffix == "jpg":
                name = {"jpg": "JPEG"}.get(suffix, suffix.upper())
                mode = "RGB" if (suffix, mode) == ("jpg", "RGBA") else mode
                data = file_of(photo(30, 44, seed=len(mode)), name, mode=mode)
                (tmp_path / "mixed" / "a" / f"{mode}.{suffix}").write_bytes(data)
        theirs = ImageFolder(str(tmp_path / "mixed"))
        for form in ("encoded", "decoded"):
            dataset = fastload.compile(theirs)
            on_disk(dataset.images, form)
            for index in range(len(theirs)):
                assert np.array_equal(np.asarray(dataset[index][0]), np.asarray(theirs[index][0]))
            report = dataset.images.cached
            assert 0 < report.hits < len(theirs)
            disk = dataset.images._cache
            entry = CacheFolder(caches).entry(disk.place.name)
            assert (entry.samples, entry.total) == (report.hits, len(theirs))
            own = on_disk(FolderDataset(tmp_path / "mixed", layout="classes"), form)
            for index in range(len(theirs)):
                file = FolderDataset(tmp_path / "mixed", layout="classes")
                assert torch.equal(own[index][0], file[index][0])

    def test_a_complete_one_is_read_where_nothing_can_be_written(self, photos, on_disk, caches):
        if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            pytest.skip("mounting needs to be allowed")
        on_disk(FolderDataset(photos))
        code = f"""
from fastload import Cache, FolderDataset
dataset = FolderDataset({str(photos)!r}, cache=Cache("disk", {str(caches)!r}))
dataset[3]
print(dataset.cached.state, dataset.cached.hits)
"""
        mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", mount, caches, sys.executable, "-W", "error", "-c", code]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stdout) == (0, "complete 1\n"), done.stderr

    def test_workers_read_it_too(self, photos, on_disk):
        transform = T.Compose([T.CenterCrop(32)])
        dataset = on_disk(FolderDataset(photos, transform))
        options = {"batch_size": 5, "num_workers": 2, "multiprocessing_context": "fork"}
        expected = list(torch.utils.data.DataLoader(FolderDataset(photos, transform), batch_size=5))
        for batch, plain in zip(DataLoader(dataset, **options), expected, strict=True):
            assert torch.equal(batch[0], plain[0])
        assert dataset.cached.hits == 24

    def test_a_pickled_dataset_finds_it_again(self, photos, on_disk):
        dataset = on_disk(FolderDataset(photos, PIPELINES["train"]))
        again = pickle.loads(pickle.dumps(dataset))
        assert torch.equal(filled(again, INDICES)[0], filled(dataset, INDICES)[0])
        assert (again.cached.hits, again.cached.misses) == (len(INDICES), 0)


class TestDamage:
    @pytest.fixture
    def folder(self, tmp_path):
        return folder_of(tmp_path / "own", [(40, 50)], 6)

    def test_errors_of_damaged_and_missing_files_are_as_ever(self, folder, on_disk):
        (folder / "a" / "00.jpg").write_bytes(b"no image")
        (folder / "b" / "01.jpg").write_bytes((folder / "b" / "01.jpg").read_bytes()[:300])
        plain, dataset = FolderDataset(folder), on_disk(FolderDataset(folder))
        (folder / "c" / "05.jpg").unlink()  # stored already
        for index in range(6):
            if index in (0, 2):
                with pytest.raises(fastload.DecodeError) as theirs:
                    plain[index]
                with pytest.raises(fastload.DecodeError) as ours:
                    dataset[index]
                assert str(ours.value) == str(theirs.value)
            else:
                assert dataset[index][0].shape == (3, 40, 50)

    def test_a_file_that_changed_since_it_was_listed_is_not_stored(self, folder, on_disk):
        dataset = FolderDataset(folder)
        dataset.source.fingerprint()  # for which the files' sizes and times are listed
        file = folder / "a" / "00.jpg"
        os.utime(file, (1, 1))
        on_disk(dataset)
        assert dataset.cached.ready == pytest.approx(5 / 6)
        assert torch.equal(dataset[0][0], FolderDataset(folder)[0][0])
        assert dataset.cached.misses == 1

    def test_a_changed_dataset_has_another_cache(self, folder, on_disk, caches):
        on_disk(FolderDataset(folder))
        (folder / "a" / "00.jpg").write_bytes(file_of(photo(40, 50, seed=99), "JPEG"))
        dataset = on_disk(FolderDataset(folder))
        assert torch.equal(dataset[0][0], FolderDataset(folder)[0][0])
        assert len(names_in(caches)) == 2

    @pytest.mark.parametrize("harm", ["flip", "truncate"])
    def test_a_damaged_cache_is_left_with_one_warning_and_made_anew(self, folder, on_disk, caches, harm):
        transform = T.CenterCrop(32)
        dataset = on_disk(FolderDataset(folder, transform))
        [shard] = caches.rglob("shard-*")
        if harm == "truncate":
            os.truncate(shard, 100)
        else:
            data = bytearray(shard.read_bytes())
            middle = len(data) // 2
            data[middle : middle + 100] = (255 - byte for byte in data[middle : middle + 100])
            shard.write_bytes(data)
        expected = filled(FolderDataset(folder, transform), range(6))[0]
        with pytest.warns(RuntimeWarning, match="no longer used, and files are read") as seen:
            assert torch.equal(filled(dataset, range(6))[0], expected)
        assert torch.equal(filled(dataset, range(6))[0], expected)
        assert len(seen) == 1
        assert dataset.cached.state.startswith("stopped")
        del dataset
        again = FolderDataset(folder, transform, cache=Cache("disk", caches))
        assert not list(caches.rglob("shard-*"))
        assert torch.equal(filled(on_disk(again), range(6))[0], expected)

    def test_a_cache_that_is_removed_is_left_too(self, folder, on_disk, caches):
        dataset = on_disk(FolderDataset(folder))
        again = pickle.loads(pickle.dumps(dataset))
        again._cache._owner = 0  # as in a worker, which opens shards when it needs them
        assert again.cached.state == "complete"
        shutil.rmtree(caches)
        expected = [FolderDataset(folder)[index][0] for index in range(6)]
        with pytest.warns(RuntimeWarning, match="no longer used, and files are read"):
            assert all(map(torch.equal, (again[index][0] for index in range(6)), expected))
        # Its shards were open already.
        assert all(map(torch.equal, (dataset[index][0] for index in range(6)), expected))

    def test_a_half_made_cache_is_not_read(self, folder, caches, on_disk):
        dataset = FolderDataset(folder, cache=Cache("disk", caches))
        disk = dataset._cache
        with pytest.raises(SystemExit):
            fill_copy(disk._source, disk.place, lambda: False)
        assert dataset.cached.state.startswith("filling")
        assert dataset[0][0].shape == (3, 40, 50)
        assert dataset.cached.hits == 0
        assert on_disk(dataset).cached.ready == 1


class TestOptions:
    def test_packed_data_and_data_in_memory_are_refused(self, packed, caches):
        with pytest.raises(OptionError, match="is packed already"):
            PackedDataset(packed("photos", "keep"), cache=Cache("disk", caches))
        with pytest.raises(OptionError, match="a cache needs a known dataset of image files"):
            fastload.compile([1, 2], cache=Cache("disk", caches))

    def test_size_is_for_the_disk(self):
        assert Cache("disk", size="2GB").most_bytes == 2_000_000_000
        with pytest.raises(OptionError, match="size is for a cache on a disk"):
            Cache("ram", size="2GB")
        with pytest.raises(OptionError, match="a size must look like"):
            Cache("disk", size="much")

    def test_a_folder_that_cannot_be_made_is_refused(self, photos, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(OptionError, match="must be a folder that can be written to"):
            FolderDataset(photos, cache=Cache("disk", tmp_path / "file"))

    def test_the_users_cache_folder_is_the_default(self, photos, tmp_path, monkeypatch, no_process):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        dataset = FolderDataset(photos, cache="disk")
        assert str(tmp_path / "fastload" / "photos-") in dataset.cached.reason

    def test_samples_that_are_set_after_compiling_are_kept_too(self, photos, caches, no_process):
        from torchvision.datasets import ImageFolder

        dataset = fastload.compile(ImageFolder(str(photos)), cache=Cache("disk", caches))
        before = dataset.images.cached.reason
        dataset.samples = dataset.samples[:8]
        report = dataset.images.cached
        assert report.kind == "disk"
        assert report.reason != before
        assert len(dataset.images) == 8

    def test_one_line_for_an_image_folder(self, photos, caches, no_process):
        from torchvision import transforms
        from torchvision.datasets import ImageFolder

        cache = Cache("disk", caches)
        steps = [transforms.CenterCrop(8), transforms.ToTensor()]
        theirs = ImageFolder(str(photos), transforms.Compose(steps))
        assert fastload.compile(theirs, cache=cache).images.cached.kind == "disk"
        subset = torch.utils.data.Subset(theirs, range(8))
        loader = DataLoader(subset, 4, compile=True, cache=cache, num_workers=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert sum(len(labels) for _, labels in loader) == 8
        assert loader.plan.cache.value == "disk"
