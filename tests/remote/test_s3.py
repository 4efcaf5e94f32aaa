"""Reading from an S3 server, moto's."""

import pytest
import torch

import fastload

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


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
