"""Packing to URLs: the shards first, the manifest last; what was interrupted is no dataset, and resumes."""

import pytest

import fastload
from fastload.errors import DestinationError, FormatError, OptionError
from tests.folders import class_folders, tree

OPTIONS = {"encode": "keep", "shard_size": "10KB", "workers": 1}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return class_folders(tmp_path_factory.mktemp("source") / "photos", 60, size=(40, 50))


@pytest.fixture(scope="module")
def reference(source, tmp_path_factory):
    dest = tmp_path_factory.mktemp("reference") / "photos.fl"
    fastload.pack(source, dest, **OPTIONS)
    return tree(dest)


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/bucket/photos.fl"


def test_a_url_gets_the_bytes_of_a_folder(tmp_path, source, reference, url):
    result = fastload.pack(source, url, **OPTIONS)
    assert result.splits[0].path == url
    assert tree(tmp_path / "bucket" / "photos.fl") == reference


def test_an_interrupted_packing_is_no_dataset_and_resumes(tmp_path, source, reference, url):
    class Stop(Exception):
        pass

    def stop(state):
        if state.records >= 30:
            raise Stop

    with pytest.raises(Stop):
        fastload.pack(source, url, progress=stop, **OPTIONS)
    with pytest.raises(FormatError):
        fastload.PackedDataset(url)
    assert fastload.pack(source, url, **OPTIONS).resumed > 0
    assert tree(tmp_path / "bucket" / "photos.fl") == reference


def test_a_dataset_at_a_url_is_replaced_only_if_that_is_said(source, url):
    fastload.pack(source, url, **OPTIONS)
    with pytest.raises(DestinationError, match="exists"):
        fastload.pack(source, url, **OPTIONS)
    fastload.pack(source, url, overwrite=True, **OPTIONS | {"encode": "raw"})
    assert len(fastload.PackedDataset(url, cache=None)) == 60


def test_parts_at_a_url_are_merged_there(tmp_path, source, reference, url):
    for number in (2, 1):
        fastload.pack(source, url, part=(number, 2), **OPTIONS)
    fastload.merge(url)
    assert tree(tmp_path / "bucket" / "photos.fl") == reference
    with pytest.raises(OptionError, match="parts at a URL cannot replace"):
        fastload.pack(source, url, part=(1, 2), overwrite=True, **OPTIONS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of moto's server
def test_packing_to_s3_gets_the_bytes_of_a_folder(bucket, source, reference):
    import s3fs

    url, options = bucket
    target = url.replace("photos.fl", "packed.fl")
    fastload.pack(source, target, storage_options=options, **OPTIONS)
    system = s3fs.S3FileSystem(**options)
    path = target.removeprefix("s3://")
    found = {name.rpartition("/")[2].encode(): system.cat_file(name) for name in system.ls(path)}
    assert found == {name: content for name, content in reference.items() if isinstance(content, bytes)}
    assert len(fastload.PackedDataset(target, storage_options=options)) == 60
