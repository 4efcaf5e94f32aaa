"""The commands that take a URL, and the list of copies."""

import importlib.util
import shutil
import tempfile

import pytest
import torch

import fastload
from fastload.cli.main import main
from fastload.doctor.folder import read_some
from fastload.shards.manifest import read_manifest
from fastload.shards.remote import RemoteFolder
from tests.folders import pixels, tree
from tests.layouts.samples import yolo
from tests.remote.server import serving


def test_info_of_a_url_fetches_the_manifest_alone(server, url, capsys):
    assert main(["info", url]) == 0
    assert "64" in capsys.readouterr().out
    assert [path for path, _ in server.requests] == ["/photos.fl/manifest.json"]


def test_info_of_a_url_counts_objects_without_the_images(tmp_path, capsys):
    fastload.pack(yolo(tmp_path / "yolo"), tmp_path / "scenes.fl", encode="raw", workers=1)
    path = next(each.parent for each in sorted((tmp_path / "scenes.fl").rglob("manifest.json")))
    with serving(path) as server:
        assert main(["info", f"{server.url}?token=abc"]) == 0
        assert server.sent(".h5") < read_manifest(path).size_bytes
        assert server.queries == {"token=abc"}
    remote = capsys.readouterr().out.splitlines()[1:]
    assert main(["info", str(path)]) == 0
    assert remote == capsys.readouterr().out.splitlines()[1:]
    assert any(line.startswith("objects ") for line in remote)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of moto's server
def test_info_of_a_missing_bucket_says_so(bucket, monkeypatch, capsys):
    _, options = bucket
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint_url"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret"])
    assert main(["info", "s3://nobucket/photos.fl"]) == 2
    assert "bucket does not exist" in capsys.readouterr().err


def test_verify_of_a_url_names_damaged_records_and_keeps_no_copy(packed, tmp_path, monkeypatch):
    shutil.copytree(packed, tmp_path / "photos.fl")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    manifest = read_manifest(packed)
    with serving(tmp_path) as server:
        url = f"{server.url}/photos.fl"
        assert fastload.verify(url).damages == ()
        assert server.sent(".h5") == manifest.size_bytes
        path = tmp_path / "photos.fl" / "shard-00002.h5"
        data = bytearray(path.read_bytes())
        image = bytes(fastload.PackedDataset(packed).read(20).stored("image"))
        data[data.index(image)] ^= 1
        path.write_bytes(data)
        (tmp_path / "photos.fl" / "shard-00003.h5").unlink()
        (tmp_path / "photos.fl" / "extra.h5").write_bytes(b"")
        found = fastload.verify(url, workers=1)
    local = fastload.verify(tmp_path / "photos.fl", workers=1)
    assert [(each.file, each.record) for each in found.damages[:3]] == [
        ("shard-00002.h5", None),
        ("shard-00002.h5", 20),
        ("shard-00003.h5", None),
    ]
    assert [each.message.replace(url, str(tmp_path / "photos.fl")) for each in found.damages[:2]] == [
        each.message for each in local.damages[:2]
    ]
    assert f"{url}/shard-00003.h5: there is no such file" in found.damages[2].message
    assert list(temporary.iterdir()) == []


def test_the_list_of_caches_names_the_copies_of_a_remote_dataset(url, cache, capsys):
    dataset = fastload.PackedDataset(url, cache=cache)
    for index in range(dataset.shard_sizes[0]):
        dataset[index]
    assert main(["cache", "list", "--folder", str(cache.folder)]) == 0
    assert url in capsys.readouterr().out
    assert main(["cache", "clear", "--all", "--folder", str(cache.folder)]) == 1  # it is being read
    del dataset
    assert main(["cache", "clear", "--folder", str(cache.folder), url]) == 0
    assert not list((cache.folder / "fastload").iterdir())


def test_unpack_of_a_url_writes_the_files_of_the_folder_and_keeps_no_copy(server, url, packed, tmp_path):
    assert main(["unpack", str(packed), str(tmp_path / "local"), "--quiet"]) == 0
    assert main(["unpack", url, str(tmp_path / "remote"), "--quiet"]) == 0
    assert tree(tmp_path / "remote") == tree(tmp_path / "local")
    assert server.sent(".h5") == read_manifest(packed).size_bytes


@pytest.mark.parametrize("words", [["preview"], ["info"], ["verify"], ["doctor"], ["unpack", "OUT"]])
def test_a_missing_package_for_a_url_is_named(words, tmp_path, capsys):
    if importlib.util.find_spec("ocifs"):
        pytest.skip("needs a protocol whose package is missing")
    command, *rest = words
    assert main([command, "oci://bucket/photos.fl", *(str(tmp_path / word) for word in rest)]) == 2
    assert "pip install ocifs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_preview_draws_a_dataset_at_a_url(url, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["preview", url, "--out", str(tmp_path / "sheet.png"), "--images", "4"]) == 0
    assert (tmp_path / "sheet.png").stat().st_size


def test_the_scheme_of_a_url_may_be_in_capitals(url):
    assert read_manifest(url.replace("http:", "HTTP:")) == read_manifest(url)


def test_the_url_of_a_manifest_is_no_dataset(url):
    with pytest.raises(fastload.FormatError, match=r"leave manifest\.json out"):
        read_manifest(f"{url}/manifest.json")


def test_each_request_has_the_query_of_the_url_and_no_message_does(server, packed, cache, capsys):
    url = f"{server.url}/photos.fl?token=abc"
    dataset = fastload.PackedDataset(url, cache=cache)
    local = fastload.PackedDataset(packed)
    loader = fastload.DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context="spawn")
    for (images, _), (expected, _) in zip(loader, fastload.DataLoader(local, 8, num_workers=0), strict=True):
        assert torch.equal(images, expected)
    assert server.queries == {"token=abc"}
    assert [main([command, url]) for command in ("verify", "info")] == [0, 0]
    assert "abc" not in "".join(capsys.readouterr())
    server.faults.extend([403] * 9)
    with pytest.raises(fastload.AccessError, match="has expired, or does not cover this file") as refusal:
        read_manifest(url)
    assert "abc" not in str(refusal.value) + repr(dataset._records.folder)


@pytest.mark.parametrize(
    "query",
    [
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600&X-Amz-Signature=abc",
        "AWSAccessKeyId=key&Signature=abc&Expires=1",
        "X-Goog-Signature=abc",
        "sv=2024-11-04&sr=b&sig=abc",
        "Expires=1&Signature=abc&Key-Pair-Id=key",
    ],
)
def test_a_query_that_signs_one_file_is_refused_with_the_way(url, query):
    with pytest.raises(fastload.OptionError, match=r"signs one file, .* open s3://") as refusal:
        read_manifest(f"{url}?{query}")
    assert "abc" not in str(refusal.value)


@pytest.mark.parametrize("query", ["sv=2024-11-04&sr=c&sig=abc", "Policy=p&Signature=abc&Key-Pair-Id=key"])
def test_a_query_for_all_files_of_a_folder_is_kept(server, url, query):
    read_manifest(f"{url}/?{query}")
    assert server.queries == {query}


def test_a_fragment_is_refused_and_is_no_damage(url):
    with pytest.raises(fastload.OptionError, match="must be a URL without '#'"):
        read_manifest(f"{url}#x")


@pytest.mark.parametrize("has_ranges", [True, False])
def test_doctor_counts_what_is_read(server, packed, has_ranges):
    server.has_ranges = has_ranges
    folder = RemoteFolder(f"{server.url}/photos.fl")
    shard = read_manifest(packed).shards[0]
    folder.ignores_ranges(shard)
    before = server.sent()
    assert read_some(folder, shard) == server.sent() - before


class Pictures:
    """A map-style dataset of noise in two classes."""

    classes = ("cat", "dog")

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return pixels(index), index % 2


def test_unpack_of_lmdb_shards_at_a_url_writes_their_labels(tmp_path):
    fastload.pack(
        Pictures(), tmp_path / "photos.fl", format="lmdb", encode="raw", workers=1, shard_size="20KB"
    )
    fastload.unpack(tmp_path / "photos.fl", tmp_path / "local")
    assert "dog" in (tmp_path / "local" / "labels.csv").read_text()
    with serving(tmp_path) as server:
        fastload.unpack(f"{server.url}/photos.fl", tmp_path / "remote")
    assert tree(tmp_path / "remote") == tree(tmp_path / "local")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of moto's server
def test_unpack_from_s3_writes_the_files_of_the_folder(bucket, packed, tmp_path):
    url, options = bucket
    fastload.unpack(packed, tmp_path / "local")
    fastload.unpack(url, tmp_path / "remote", storage_options=options)
    assert tree(tmp_path / "remote") == tree(tmp_path / "local")


def test_unpack_of_a_url_leaves_out_a_missing_shard_and_names_it(packed, tmp_path, capsys):
    shutil.copytree(packed, tmp_path / "photos.fl")
    (tmp_path / "photos.fl" / "shard-00001.h5").unlink()
    with serving(tmp_path) as server:
        assert main(["unpack", f"{server.url}/photos.fl", str(tmp_path / "out")]) == 1
    found = capsys.readouterr()
    missing = read_manifest(packed).shards[1].records
    assert "shard-00001.h5: there is no such file" in found.err
    assert f"{64 - missing} files" in found.out


def test_unpack_of_a_url_ends_when_the_server_is_lost(server, url, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(RemoteFolder.__init__, "__defaults__", (None, 0.5))
    server.faults.extend([None, None, "lost"])
    assert main(["unpack", url, str(tmp_path / "out")]) == 3
    assert "attempts failed in" in capsys.readouterr().err


def test_unpack_of_a_url_without_a_dataset_makes_nothing(server, tmp_path, capsys):
    assert main(["unpack", f"{server.url}/nothing.fl", str(tmp_path / "out")]) == 2
    assert "check the URL" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_files_are_unpacked_to_this_machine_only(packed):
    with pytest.raises(fastload.DestinationError, match="a folder of this machine"):
        fastload.unpack(packed, "s3://bucket/photos")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of moto's server
def test_doctor_of_a_dataset_in_s3_says_what_the_server_sends(bucket, tmp_path, monkeypatch, capsys):
    url, options = bucket
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint_url"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret"])
    assert main(["doctor", "--quiet", url]) == 0
    found = capsys.readouterr().out
    assert f"How fast does {url} load?" in found
    assert "The server sends" in found
    assert main(["doctor", "--quiet", "s3://bucket/nothing.fl"]) == 2
