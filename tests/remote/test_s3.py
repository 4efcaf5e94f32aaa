"""Reading from an S3 server, moto's."""

import pytest
import torch

import fastload

moto_server = pytest.importorskip("moto.server")
pytest.importorskip("s3fs")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def bucket(packed):
    """The URL of the dataset in a bucket, and the options to reach it."""
    import s3fs

    server = moto_server.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    options = {"key": "testing", "secret": "testing", "endpoint_url": f"http://127.0.0.1:{port}"}
    system = s3fs.S3FileSystem(**options)
    system.mkdir("bucket")
    for path in packed.iterdir():
        system.put_file(str(path), f"bucket/photos.fl/{path.name}")
    yield "s3://bucket/photos.fl", options
    server.stop()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_from_s3_equals_that_of_the_folder(bucket, packed, cache, num_workers):
    url, options = bucket
    remote = fastload.PackedDataset(url, storage_options=options, cache=cache)
    batches = fastload.DataLoader(remote, batch_size=8, num_workers=num_workers)
    local = fastload.DataLoader(fastload.PackedDataset(packed), batch_size=8, num_workers=0)
    for one, other in zip(batches, local, strict=True):
        assert torch.equal(one[0], other[0])


def test_a_missing_dataset_in_s3_is_named(bucket):
    _, options = bucket
    with pytest.raises(fastload.FormatError, match=r"s3://bucket/nothing\.fl"):
        fastload.PackedDataset("s3://bucket/nothing.fl", storage_options=options)
