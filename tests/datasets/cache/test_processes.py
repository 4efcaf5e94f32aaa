"""There is one copy for all processes of a node, and nothing is left behind, however they end."""

import os
import signal
import sys
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torchvision.datasets import ImageFolder

import fastload
from fastload import FolderDataset
from fastload.datasets.cache.sharing import open_store, store_folder
from fastload.datasets.cache.store import Opening
from fastload.system.own_files import CacheLock, holders, open_held
from tests.datasets.cache.programs import running
from tests.folders import class_folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd and /proc are Linux's")

COUNT = 30
KINDS = ["ram", "tmpfs"]


@pytest.fixture
def folder(tmp_path):
    return class_folders(tmp_path / "photos", COUNT)


def stores_in(place):
    """Return the files of stores."""
    return sorted(path.name for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", KINDS)
class TestOneCopy:
    def test_two_unrelated_programs_share_a_cache(self, folder, place, kind):
        with running(folder, place, kind) as one, running(folder, place, kind) as other:
            assert one.opened["inode"] == other.opened["inode"]
            assert one.tell(f"read 0 {COUNT}")["misses"] == COUNT
            answer = other.tell(f"read 0 {COUNT}")
            assert (answer["hits"], answer["misses"]) == (COUNT, 0)

    def test_cache_outlives_the_process_that_made_it(self, folder, place, kind):
        with running(folder, place, kind) as one, running(folder, place, kind) as other:
            one.tell(f"read 0 {COUNT}")
            one.kill()
            with running(folder, place, kind) as third:
                assert third.opened["inode"] == other.opened["inode"]
                assert third.tell(f"read 0 {COUNT}")["misses"] == 0

    def test_other_forms_and_changed_folders_have_separate_caches(self, folder, place, kind):
        with running(folder, place, kind) as one, running(folder, place, kind, "decoded") as other:
            assert one.opened["inode"] != other.opened["inode"]
            one.tell(f"read 0 {COUNT}")
            photo = next(folder.rglob("*.jpg"))
            os.utime(photo, ns=(1, 1))
            with running(folder, place, kind) as third:
                assert third.opened["inode"] != one.opened["inode"]
                assert third.tell(f"read 0 {COUNT}")["hits"] == 0


@pytest.mark.parametrize("kind", KINDS)
class TestNothingIsLeft:
    def test_after_the_last_user_has_ended(self, folder, place, kind):
        with running(folder, place, kind) as one:
            one.tell(f"read 0 {COUNT}")
            assert stores_in(place)
        assert os.listdir(place) == []

    def test_at_the_next_start_after_a_kill(self, folder, place, kind, tmp_path):
        with running(folder, place, kind) as one:
            one.tell(f"read 0 {COUNT}")
            left = stores_in(place)
            one.kill()
        with running(class_folders(tmp_path / "other", 3, seed=50), place, kind):
            assert not set(left) & set(stores_in(place))

    def test_cache_is_empty_after_a_kill(self, folder, place, kind):
        with running(folder, place, kind) as one:
            one.tell(f"read 0 {COUNT}")
            one.kill()
        with running(folder, place, kind) as again:
            assert again.opened["ready"] == 0
            assert again.tell(f"read 0 {COUNT}")["ready"] == COUNT

    def test_after_a_cache_is_closed(self, folder, place, kind, cache):
        before = sorted(os.listdir("/proc/self/fd"))
        dataset = FolderDataset(folder, cache=cache(kind))
        list(dataset)
        dataset.close_cache()
        assert sorted(os.listdir("/proc/self/fd")) == before
        assert os.listdir(place) == []

    def test_foreign_files_are_not_removed(self, folder, place, kind):
        with running(folder, place, kind) as one:
            own = place / f"fastload-{os.getuid()}"
            (own / "notes.txt").write_text("foreign")
            (own / f"photos-{'0' * 12}.lock.old").write_text("foreign too")
            one.tell(f"read 0 {COUNT}")
        assert stores_in(place) == ["notes.txt", f"photos-{'0' * 12}.lock.old"]
        for name in os.listdir(own):
            (own / name).unlink()
        with running(folder, place, kind):
            pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_ends_only_the_use_of_one_process(folder, place, number, kind, tmp_path):
    with running(folder, place, kind) as other, running(folder, place, kind) as one:
        one.tell(f"read 0 {COUNT}")
        other.process.send_signal(number)  # which has made the store
        other.end()
        with running(folder, place, kind) as third:
            assert third.opened["inode"] == one.opened["inode"]
        one.process.send_signal(number)
    left = [path.stat().st_size for path in place.rglob("*.*")]
    assert all(size < 300 for size in left)  # the list of its users, its description; its memory is free
    with running(class_folders(tmp_path / "other", 3, seed=50), place, kind):
        pass


class TestFilling:
    @pytest.mark.parametrize("kind", KINDS)
    def test_hits_of_forked_workers_are_counted(self, folder, cache, kind):
        dataset = FolderDataset(folder, cache=cache(kind))
        loader = fastload.DataLoader(dataset, num_workers=2, multiprocessing_context="fork")
        for _ in loader:
            pass
        before = dataset.cached
        assert before.ready == 1
        for _ in loader:
            pass
        after = dataset.cached
        assert (after.hits - before.hits, after.misses - before.misses) == (COUNT, 0)

    def test_unreadable_file_does_not_stop_the_filling(self, folder, place, cache):
        photos = sorted(folder.rglob("*.jpg"))
        photos[3].write_bytes(photos[3].read_bytes()[:100])
        dataset = FolderDataset(folder, cache=cache("ram", "decoded"))
        for index in range(COUNT):
            with pytest.raises(fastload.DecodeError, match="truncated") if index == 3 else nullcontext():
                dataset[index]
        assert dataset.cached.ready == (COUNT - 1) / COUNT
        assert dataset.cached.stopped == ""

    @pytest.mark.parametrize("form", ["encoded", "decoded"])
    def test_file_that_cannot_be_decoded_raises_the_same_error_from_a_cache(self, folder, cache, form):
        photo = min(folder.rglob("*.jpg"))
        data = bytearray(photo.read_bytes())
        data[data.index(b"\xff\xc0") + 11] = 0x51  # a sampling that no decoder knows
        photo.write_bytes(data)
        dataset = FolderDataset(folder, cache=cache("ram", form))
        with pytest.raises(fastload.DecodeError) as plain:
            FolderDataset(folder)[0]
        for _ in range(2):
            with pytest.raises(fastload.DecodeError) as cached:
                dataset[0]
            assert str(cached.value) == str(plain.value)

    def test_unreadable_listed_file_does_not_prevent_a_cache_of_pixels(self, folder, cache):
        min(folder.rglob("*.jpg")).write_bytes(b"no image")
        dataset = fastload.compile(ImageFolder(folder), cache=cache("ram", "decoded"))
        assert dataset.images.cached.kind == "ram"


def _opened(place, count=8, capacity=1 << 20):
    folder = store_folder(place)
    return open_store(Opening("ram", "encoded", folder, "photos", "a" * 32, count, 0, capacity))


class TestWriters:
    def test_writer_killed_half_way_leaves_no_record(self, place):
        store = _opened(place)
        child = os.fork()
        if not child:
            with store._locked():
                store._claim(3, 100, 0)
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert not store.has(3)
        assert not store.put(3, b"x" * 100)
        assert store.put(4, b"y" * 100)
        assert store.has(4)
        assert bytes(store.data(4)) == b"y" * 100

    def test_process_forked_while_a_thread_writes_can_write(self, place):
        store = _opened(place)
        is_held, may_go = threading.Event(), threading.Event()

        def hold():
            with store._locked():
                is_held.set()
                may_go.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        is_held.wait()
        child = os.fork()
        if not child:
            # A child that waits forever is killed, which its status shows.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os._exit(0 if store.put(5, b"z" * 10) else 1)
        may_go.set()
        thread.join()
        assert os.waitpid(child, 0)[1] == 0
        assert bytes(store.data(5)) == b"z" * 10

    def test_concurrent_writers_lose_nothing(self, place):
        store = _opened(place, 400)
        children = []
        for number in range(4):
            if not (child := os.fork()):
                stored = sum(store.put(index, bytes([number]) * (index + 1)) for index in range(400))
                os._exit(0 if stored else 1)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        assert store.ready == 400
        for index in range(400):
            assert store.has(index)
            data = bytes(store.data(index))
            assert data == data[:1] * (index + 1)


class TestChecks:
    def test_forked_process_repeats_the_checks_of_its_parent(self, place):
        store = _opened(place)
        for index in (3, 4):
            assert store.put(index, b"y" * 100, b"", b"tail")
        assert store.found(np.array([3, 4])).all()
        store._writable[store._index["offset"][3]] ^= 1
        assert store.has(3)  # checked before
        child = os.fork()
        if not child:
            os._exit(
                int(store.has(3)) + 2 * int(store.found(np.array([4, 3, 4])).tolist() != [True, False, True])
            )
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not store.has(3)  # no process uses it again
        assert store.has(4)

    @pytest.mark.parametrize("form", ["encoded", "decoded"])
    def test_forked_workers_read_damaged_records_from_the_disk(self, folder, cache, form):
        dataset = FolderDataset(folder, cache=cache("ram", form))
        expected = [image for image, _ in dataset]
        list(dataset)
        store = dataset._cache.store
        for index in (5, 6):
            store._writable[int(store._index["offset"][index]) + 50] ^= 255
        loader = fastload.DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork")
        assert all(torch.equal(image, loaded) for image, (loaded, _) in zip(expected, loader, strict=True))


class TestFolder:
    def test_folder_that_others_can_write_to_is_refused(self, folder, place, cache):
        own = place / f"fastload-{os.getuid()}"
        own.mkdir()
        own.chmod(0o770)
        with pytest.raises(fastload.OptionError, match="others may write to it"):
            FolderDataset(folder, cache=cache())
        own.rmdir()

    def test_link_is_refused(self, folder, place, cache, tmp_path):
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        own = place / f"fastload-{os.getuid()}"
        own.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(fastload.OptionError, match="it is a link"):
            FolderDataset(folder, cache=cache("tmpfs"))
        own.unlink()

    def test_process_forked_while_a_list_is_locked_does_not_hold_the_lock(self, tmp_path):
        lock = CacheLock.on(tmp_path / "users")
        began, beginning = os.pipe()
        if not (child := os.fork()):
            os.write(beginning, b"1")
            signal.pause()
        assert os.read(began, 1)
        os.close(began), os.close(beginning)
        lock.release()
        again = CacheLock.on(tmp_path / "users")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert again is not None
        again.release()

    def test_lines_of_processes_that_ended_while_they_wrote_are_left_out(self, place):
        store = _opened(place)
        users = store.opening.folder.lock_file(store.opening.name)
        users.write_bytes(b"\xff 12\n1\n1 x 3 4\n999999999 3 4 5\n" + users.read_bytes() + b"12 3")
        descriptor = open_held(users)
        assert os.path.samestat(os.fstat(descriptor), os.fstat(store.descriptor))
        os.close(descriptor)
        assert [process for process, *_ in holders(users)] == [os.getpid()]

    def test_processes_that_begin_at_once_share_one_store(self, place):
        ready, go = os.pipe()
        children = []
        for _ in range(12):
            result, end = os.pipe()
            if not (child := os.fork()):
                os.read(ready, 1)
                store = _opened(place)
                os.write(end, str(os.fstat(store.descriptor).st_ino).encode())
                signal.pause()
            os.close(end)
            children.append((child, result))
        os.write(go, b"x" * 12)
        inodes = {os.read(result, 64) for _, result in children}
        for child, result in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(result)
        os.close(ready), os.close(go)
        assert len(inodes) == 1
        _opened(place, 9)  # removes what the killed ones left
