"""Reference samples, made step by step, for comparison with every fast path."""

import torch
import torch.utils.data

from fastload import FolderDataset
from fastload.datasets.batch import HostMemory
from fastload.images.decode import decode
from fastload.images.encodings import encoding_named
from fastload.transforms.draws import EpochDraws, draws_for
from fastload.transforms.pipeline import Pipeline
from tests.images.samples import file_of, photo

SEED = 20_240_229
CLASSES = ("ant", "bee", "cat")


def folder_of(root, sizes, count, suffix=".jpg"):
    for number in range(count):
        place = root / "abc"[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        pixels = photo(*sizes[number % len(sizes)], seed=number)
        data = file_of(pixels, "PNG" if suffix == ".png" else "JPEG")
        (place / f"{number:02d}{suffix}").write_bytes(data)
    return root


def plain(dataset, transform, index, seed=SEED):
    """Make one reference sample: decode the whole image, then apply one transform after the other."""
    with EpochDraws(seed):
        draws = draws_for([index])
    if isinstance(dataset, FolderDataset):
        pixels = decode(dataset.source.read(index).image)
    else:
        record = dataset.read(index)
        name = dataset._records.manifest.image.encoding
        pixels = encoding_named(name).decode(record.stored("image"), record.image_shape()).copy()
    return Pipeline(transform).run(pixels, draws)


def filled(dataset, indices, seed=SEED):
    with EpochDraws(seed):
        return dataset.fetch_into(indices, HostMemory())


def check_against_plain(dataset, transform, indices):
    images, labels = filled(dataset, indices)
    expected = [plain(dataset, transform, index) for index in indices]
    assert images.dtype == expected[0].dtype
    assert torch.equal(images, torch.stack(expected))
    assert labels.tolist() == [dataset.targets[index] for index in indices]
    with EpochDraws(SEED):
        samples = dataset.__getitems__(indices)
    assert all(torch.equal(image, one) for (image, _), one in zip(samples, expected, strict=True))
    assert [label for _, label in samples] == labels.tolist()


def are_equal(sample, other):
    return torch.equal(torch.as_tensor(sample[0]), torch.as_tensor(other[0])) and sample[1] == other[1]
