"""The commands that take a URL, and the list of copies."""

import shutil

from fastload.cli.main import main
from tests.remote.server import serving


def test_info_of_a_url_fetches_the_manifest_alone(server, url, capsys):
    assert main(["info", url]) == 0
    assert "64" in capsys.readouterr().out
    assert [path for path, _ in server.requests] == ["/photos.fl/manifest.json"]


def test_verify_of_a_url_names_a_damaged_shard(packed, tmp_path, capsys):
    shutil.copytree(packed, tmp_path / "photos.fl")
    with serving(tmp_path) as server:
        url = f"{server.url}/photos.fl"
        assert main(["verify", url]) == 0
        path = tmp_path / "photos.fl" / "shard-00002.h5"
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        (tmp_path / "photos.fl" / "shard-00003.h5").unlink()
        assert main(["verify", url]) == 1
    found = capsys.readouterr().err
    assert "shard-00002.h5: the manifest says" in found
    assert "shard-00003.h5: there is no such file" in found


def test_the_list_of_caches_names_the_copies_of_a_remote_dataset(url, cache, capsys):
    import fastload

    dataset = fastload.PackedDataset(url, cache=cache)
    for index in range(dataset.shard_sizes[0]):
        dataset[index]
    assert main(["cache", "list", "--folder", str(cache.folder)]) == 0
    assert url in capsys.readouterr().out
    assert main(["cache", "clear", "--all", "--folder", str(cache.folder)]) == 1  # it is being read
    del dataset
    assert main(["cache", "clear", url, "--folder", str(cache.folder)]) == 0
    assert not list((cache.folder / "fastload").iterdir())
