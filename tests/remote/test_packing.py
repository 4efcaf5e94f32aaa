"""Packing to URLs: the shards first, the manifest last; what was interrupted is no dataset, and resumes."""

import shutil

import pytest

import fastload
from fastload.errors import DestinationError, FormatError, OptionError
from tests.folders import SMALL_SHARDS, encoded, pixels, tree


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/bucket/photos.fl"


def test_a_url_gets_the_bytes_of_a_folder(tmp_path, sixty_photos, sixty_packed, url):
    result = fastload.pack(sixty_photos, url, **SMALL_SHARDS)
    assert result.splits[0].path == url
    assert tree(tmp_path / "bucket" / "photos.fl") == sixty_packed


def test_an_interrupted_packing_is_no_dataset_and_resumes(tmp_path, sixty_photos, sixty_packed, url):
    class Stop(Exception):
        pass

    def stop(state):
        if state.records >= 30:
            raise Stop

    with pytest.raises(Stop):
        fastload.pack(sixty_photos, url, progress=stop, **SMALL_SHARDS)
    with pytest.raises(FormatError):
        fastload.PackedDataset(url)
    assert fastload.pack(sixty_photos, url, **SMALL_SHARDS).resumed > 0
    assert tree(tmp_path / "bucket" / "photos.fl") == sixty_packed


def test_a_packing_interrupted_between_manifests_resumes_and_no_other_replaces_it(tmp_path, url):
    for number in range(12):
        place = tmp_path / "photos" / ("train", "val")[number % 2] / "a"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.jpg").write_bytes(encoded(pixels(number, 40, 50)))

    class Stop(Exception):
        pass

    def stop(state):
        raise Stop

    bucket = tmp_path / "bucket" / "photos.fl"
    with pytest.raises(Stop):
        fastload.pack(tmp_path / "photos", url, progress=stop, **SMALL_SHARDS)
    shutil.copytree(bucket / ".partial", tmp_path / "state")
    fastload.pack(tmp_path / "photos", url, **SMALL_SHARDS)
    whole = tree(bucket)
    shutil.copytree(tmp_path / "state", bucket / ".partial")
    (bucket / "val.fl" / "manifest.json").unlink()
    with pytest.raises(DestinationError, match="exists already"):
        fastload.pack(tmp_path / "photos", url, **SMALL_SHARDS | {"encode": "raw"})
    fastload.pack(tmp_path / "photos", url, **SMALL_SHARDS)
    assert tree(bucket) == whole


def test_a_dataset_at_a_url_is_replaced_only_if_that_is_said(sixty_photos, url):
    fastload.pack(sixty_photos, url, **SMALL_SHARDS)
    with pytest.raises(DestinationError, match="exists"):
        fastload.pack(sixty_photos, url, **SMALL_SHARDS)
    fastload.pack(sixty_photos, url, overwrite=True, **SMALL_SHARDS | {"encode": "raw"})
    assert len(fastload.PackedDataset(url, cache=None)) == 60


def test_a_packing_stops_once_another_to_its_url_has_begun(sixty_photos, url):
    others = []

    def begin_another(state):
        if state.records >= 20 and not others:
            others.append(fastload.pack(sixty_photos, url, **SMALL_SHARDS | {"encode": "raw"}))

    with pytest.raises(DestinationError, match="another process has begun to pack to it"):
        fastload.pack(sixty_photos, url, progress=begin_another, **SMALL_SHARDS)
    assert not fastload.verify(url).damages
    assert others[0].encoding == "raw"


def test_a_packing_of_a_python_dataset_stops_once_another_has_begun(url):
    def samples(first):
        return [(pixels(number), number) for number in range(first, first + 60)]

    others = []

    def begin_another(state):
        if state.records >= 20 and not others:
            others.append(fastload.pack(samples(1000), url, **options))

    options = SMALL_SHARDS | {"encode": "raw"}
    with pytest.raises(DestinationError, match="another process has begun to pack to it"):
        fastload.pack(samples(0), url, progress=begin_another, **options)
    dataset = fastload.PackedDataset(url, cache=None)
    assert [int(dataset[index][1]) for index in range(60)] == [*range(1000, 1060)]


def test_parts_at_a_url_are_merged_there(tmp_path, sixty_photos, sixty_packed, url):
    for number in (2, 1):
        fastload.pack(sixty_photos, url, part=(number, 2), **SMALL_SHARDS)
    fastload.merge(url)
    assert tree(tmp_path / "bucket" / "photos.fl") == sixty_packed
    with pytest.raises(OptionError, match="parts at a URL cannot replace"):
        fastload.pack(sixty_photos, url, part=(1, 2), overwrite=True, **SMALL_SHARDS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of moto's server
def test_packing_to_s3_gets_the_bytes_of_a_folder(bucket, sixty_photos, sixty_packed):
    import s3fs

    url, options = bucket
    target = url.replace("photos.fl", "packed.fl")
    fastload.pack(sixty_photos, target, storage_options=options, **SMALL_SHARDS)
    system = s3fs.S3FileSystem(**options)
    path = target.removeprefix("s3://")
    found = {name.rpartition("/")[2].encode(): system.cat_file(name) for name in system.ls(path)}
    assert found == {name: content for name, content in sixty_packed.items() if isinstance(content, bytes)}
    assert len(fastload.PackedDataset(target, storage_options=options)) == 60
