"""Packing on a Ray cluster: the bytes of a local packing, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fsspec
import pytest

import fastload
from fastload import OptionError, PackError, SourceError
from tests.folders import class_folders, tree
from tests.remote.server import serving_s3

# Ray's own code: sockets that it leaves to the collector, and warnings of the libraries that it uses.
pytestmark = [
    pytest.mark.frameworks("ray"),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
    ),
]

OPTIONS = {"encode": "keep", "shard_size": "10KB", "on_error": "skip"}


@pytest.fixture(scope="module")
def cluster():
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
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


def test_a_cluster_that_has_ended_is_named_with_the_file_that_still_has_its_address(
    tmp_path, source, monkeypatch
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    file = tmp_path / "ray" / "ray_current_cluster"
    file.parent.mkdir()
    file.write_text("127.0.0.1:1")
    with pytest.raises(PackError, match=r"ray_current_cluster has the address of .* or use ray=local"):
        fastload.pack(source, tmp_path / "a.fl", on="ray", **OPTIONS)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:2")
    with pytest.raises(PackError, match=r"127\.0\.0\.1:2: nothing answers .* RAY_ADDRESS has the address"):
        fastload.pack(source, tmp_path / "a.fl", on="ray", **OPTIONS)


def test_packing_on_ray_has_the_bytes_of_a_local_one(tmp_path, cluster, source):
    states = []
    on_ray = fastload.pack(source, tmp_path / "ray.fl", on="ray", progress=states.append, **OPTIONS)
    local = fastload.pack(source, tmp_path / "local.fl", workers=1, **OPTIONS)
    assert tree(tmp_path / "ray.fl") == tree(tmp_path / "local.fl")
    assert on_ray.splits[0].skipped == local.splits[0].skipped
    assert states[-1].records == 60
    assert cluster.is_initialized()  # the program's own connection stays


def test_an_error_of_a_task_is_the_librarys_own(tmp_path, cluster, source):
    with pytest.raises(SourceError, match="0040"):
        fastload.pack(source, tmp_path / "a.fl", on="ray", **OPTIONS | {"on_error": "fail"})
    assert not (tmp_path / "a.fl").exists()


def test_rows_of_ray_data_are_packed_from_parquet(tmp_path, cluster, source):
    import ray.data

    def row(file):
        path = Path(file["path"])
        return {
            "image": file["bytes"],
            "label": int(path.parent.name.removeprefix("class")),
            "name": path.name,
        }

    rows = ray.data.read_binary_files(str(source), include_paths=True).map(row)
    rows.write_parquet(str(tmp_path / "rows"))
    fastload.pack(tmp_path / "rows", tmp_path / "rows.fl", **OPTIONS)
    fastload.pack(source, tmp_path / "photos.fl", **OPTIONS)
    found, wanted = (
        fastload.PackedDataset(tmp_path / "rows.fl"),
        fastload.PackedDataset(tmp_path / "photos.fl"),
    )
    stored = {found.read(index)["name"]: found.read(index) for index in range(len(found))}
    assert len(found) == len(wanted) == 59
    for index in range(len(wanted)):
        record = wanted.read(index)
        same = stored[Path(record.key).name]
        assert (bytes(same.stored("image")), same["label"]) == (
            bytes(record.stored("image")),
            record["label"],
        )


@pytest.mark.soak
def test_ray_train_leaves_the_parts_of_a_sharded_loader(tmp_path, cluster):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def train(config):
        import ray.train
        from ray.train.torch import prepare_data_loader

        import fastload

        loader = fastload.DataLoader(
            range(61), 4, shuffle=True, seed=0, num_workers=0, sharded=True, ends="exact"
        )
        kept = prepare_data_loader(loader)
        rank = ray.train.get_context().get_world_rank()
        samples = [int(number) for batch in kept for number in batch]
        (Path(config["folder"]) / f"{rank}.json").write_text(json.dumps(samples))

    run = RunConfig(storage_path=str(tmp_path / "ray"))
    scaling = ScalingConfig(num_workers=2)
    TorchTrainer(
        train, train_loop_config={"folder": str(tmp_path)}, scaling_config=scaling, run_config=run
    ).fit()
    parts = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert sorted(len(part) for part in parts) == [30, 31]
    assert sorted(parts[0] + parts[1]) == list(range(61))


@pytest.mark.parametrize("options", [{"on": "slurm"}, {"on": "ray="}, {"on": "ray", "workers": 2}])
def test_impossible_options_are_refused(tmp_path, source, options):
    with pytest.raises(OptionError):
        fastload.pack(source, tmp_path / "a.fl", **options)


MANY = {"encode": "jpeg", "shard_size": "100KB"}


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """More images than are packed in a second."""
    return class_folders(tmp_path_factory.mktemp("many") / "photos", 600, size=(200, 300))


@pytest.fixture(scope="module")
def packed_here(many, tmp_path_factory):
    """The files of a local packing of them."""
    dest = tmp_path_factory.mktemp("local") / "photos.fl"
    fastload.pack(many, dest, workers=2, **MANY)
    return tree(dest)


@pytest.mark.soak
def test_killed_tasks_are_repeated(tmp_path, cluster, many, packed_here):
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
        fastload.pack(many, tmp_path / "ray.fl", on="ray", **MANY)
    finally:
        stopped.set()
        killer.join()
    assert killed
    assert tree(tmp_path / "ray.fl") == packed_here


@pytest.fixture
def nodes():
    """A cluster of two nodes with a CPU each, and its second node."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    yield cluster, second
    cluster.shutdown()


@pytest.fixture(params=["path", "bucket"])
def place(request, tmp_path):
    """A destination that both nodes reach, its storage options, and a file system with it."""
    if request.param == "path":
        yield str(tmp_path / "photos.fl"), None, fsspec.filesystem("file")
        return
    with serving_s3() as options:
        yield f"s3://bucket/{tmp_path.name}.fl", options, fsspec.filesystem("s3", **options)


PROGRAM = """
import json, sys, fastload
source, dest, on, options, storage_options = map(json.loads, sys.argv[1:])
result = fastload.pack(source, dest, on=on, storage_options=storage_options, **options)
print(result.resumed)
"""


def driver(many, place, address):
    """Start to pack on a cluster, in a process of its own."""
    dest, storage_options, _ = place
    arguments = map(json.dumps, (str(many), dest, f"ray={address}", MANY, storage_options))
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True)


def wait_for_shards(place, count, process):
    """Wait until the journal lists so many shards as finished."""
    dest, _, system = place
    state = f"{dest}/.partial" if "://" in dest else str(Path(dest).with_name(".photos.fl.partial") / "state")
    while process.poll() is None:
        system.invalidate_cache()
        if len(system.glob(f"{state}/*.finished.json")) >= count:
            return
        time.sleep(0.02)
    raise AssertionError("packing ended first")


def files_at(place):
    dest, _, system = place
    system.invalidate_cache()
    return {path.rpartition("/")[2].encode(): system.cat_file(path) for path in system.find(dest)}


@pytest.mark.soak
def test_a_killed_driver_resumes(many, packed_here, nodes, place):
    cluster, _ = nodes
    for count in (1, 5, 20):
        process = driver(many, place, cluster.address)
        wait_for_shards(place, count, process)
        process.kill()
        process.wait()
    process = driver(many, place, cluster.address)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert int(out) > 0
    assert files_at(place) == packed_here


@pytest.mark.soak
def test_tasks_of_a_killed_node_are_repeated_on_another(many, packed_here, nodes, place):
    cluster, second = nodes
    process = driver(many, place, cluster.address)
    wait_for_shards(place, 5, process)
    cluster.remove_node(second, allow_graceful=False)
    assert process.wait() == 0
    assert files_at(place) == packed_here
