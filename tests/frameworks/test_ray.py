"""Packing on a Ray cluster: the bytes of a local packing, and nothing left behind."""

import os
import signal
import threading

import pytest

import fastload
from fastload import OptionError, PackError, SourceError
from tests.folders import class_folders, tree

ray = pytest.importorskip("ray")
# Ray's own code: sockets that it leaves to the collector, and warnings of the libraries that it uses.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")

OPTIONS = {"encode": "keep", "shard_size": "10KB", "on_error": "skip"}


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Three classes of images, one of them damaged."""
    root = class_folders(tmp_path_factory.mktemp("source") / "photos", 60, size=(40, 50))
    os.truncate(root / "class1" / "0040.jpg", 500)
    return root


def test_a_cluster_that_does_not_answer_is_named(tmp_path, source):
    with pytest.raises(PackError, match=r"127\.0\.0\.1:1"):
        fastload.pack(source, tmp_path / "a.fl", on="ray=127.0.0.1:1", **OPTIONS)


def test_packing_on_ray_has_the_bytes_of_a_local_one(tmp_path, cluster, source):
    states = []
    on_ray = fastload.pack(source, tmp_path / "ray.fl", on="ray", progress=states.append, **OPTIONS)
    local = fastload.pack(source, tmp_path / "local.fl", workers=1, **OPTIONS)
    assert tree(tmp_path / "ray.fl") == tree(tmp_path / "local.fl")
    assert on_ray.splits[0].skipped == local.splits[0].skipped
    assert states[-1].records == 60
    assert ray.is_initialized()  # the program's own connection stays


def test_an_error_of_a_task_is_the_librarys_own(tmp_path, cluster, source):
    with pytest.raises(SourceError, match="0040"):
        fastload.pack(source, tmp_path / "a.fl", on="ray", **OPTIONS | {"on_error": "fail"})
    assert not (tmp_path / "a.fl").exists()


@pytest.mark.parametrize("options", [{"on": "slurm"}, {"on": "ray="}, {"on": "ray", "workers": 2}])
def test_impossible_options_are_refused(tmp_path, source, options):
    with pytest.raises(OptionError):
        fastload.pack(source, tmp_path / "a.fl", **options)


@pytest.mark.soak
def test_killed_tasks_are_repeated(tmp_path, cluster, tmp_path_factory):
    source = class_folders(tmp_path_factory.mktemp("many") / "photos", 600, size=(200, 300))
    options = {"encode": "jpeg", "shard_size": "100KB"}
    stopped, killed = threading.Event(), []

    def kill() -> None:
        import psutil

        while not stopped.wait(0.3) and len(killed) < 5:
            for process in psutil.process_iter(["pid", "cmdline"]):
                if (process.info["cmdline"] or [""])[0] == "ray::_on_node":
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)
                    break

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        fastload.pack(source, tmp_path / "ray.fl", on="ray", **options)
    finally:
        stopped.set()
        killer.join()
    assert killed
    fastload.pack(source, tmp_path / "local.fl", workers=1, **options)
    assert tree(tmp_path / "ray.fl") == tree(tmp_path / "local.fl")
