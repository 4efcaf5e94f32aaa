"""Subset, ConcatDataset and random_split of compiled datasets."""

import copy
import pickle

import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset, random_split

import fastload
from fastload import DataLoader
from fastload.datasets.batch import HostMemory
from fastload.errors import OptionError
from tests.datasets.compiled.pipelines import PIPELINES
from tests.datasets.compiled.test_compile import Own


@pytest.fixture
def folder(photos):
    from torchvision.datasets import ImageFolder

    return lambda name: ImageFolder(str(photos), transform=copy.deepcopy(PIPELINES[name][0]))


def _nested(first, second):
    """Subsets of a concatenation of subsets."""
    both = ConcatDataset([Subset(first, range(3, 20)), ConcatDataset([Subset(second, [5, 1, 9]), first])])
    return Subset(Subset(both, range(2, 40)), list(range(35, -1, -1)))


def _batches(loader, dataset, workers=0):
    torch.manual_seed(2)
    context = "fork" if workers else None
    return list(loader(dataset, 8, shuffle=True, num_workers=workers, multiprocessing_context=context))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("names", [("train", "train"), ("train", "erasing"), ("evaluation", "evaluation")])
def test_batches_of_nested_parts_are_torchs(folder, names, workers):
    first = folder(names[0])
    second = folder(names[1])
    if names[0] == names[1]:
        second.transform = first.transform
    else:
        second.transform.transforms[0].transforms[0].size = (48, 48)
    dataset = _nested(first, second)
    theirs = _batches(torch.utils.data.DataLoader, dataset, workers)
    ours = _batches(fastload.DataLoader, fastload.compile(dataset), workers)
    for (images, labels), (our_images, our_labels) in zip(theirs, ours, strict=True):
        assert labels.tolist() == our_labels.tolist()
        assert (images - our_images).abs().max() < 0.06


def test_parts_that_share_a_transform_are_made_at_once(folder):
    first, second = folder("train"), folder("train")
    second.transform = first.transform
    concat = fastload.compile(ConcatDataset([first, Subset(second, [4, 2])]))
    for index, indices in enumerate(([0, 24, 3, 25, -1], [1])):
        torch.manual_seed(index)
        one_by_one = [concat[each] for each in indices]
        torch.manual_seed(index)
        images, labels = concat.fetch_into(indices, HostMemory())
        assert torch.allclose(images, torch.stack([image for image, _ in one_by_one]), atol=1e-6)
        assert labels.tolist() == [label for _, label in one_by_one]
        torch.manual_seed(index)
        assert torch.equal(torch.stack([image for image, _ in concat.__getitems__(indices)]), images)
    concat.datasets[0].transform = PIPELINES["evaluation"][0]
    assert concat.fetch_into([0, 1], HostMemory()) is NotImplemented


def test_parts_of_other_shapes_are_collated(folder):
    concat = fastload.compile(ConcatDataset([folder("train"), TensorDataset(torch.zeros(4, 3))]))
    assert concat.fetch_into([0], HostMemory()) is NotImplemented
    assert len(concat.__getitems__([0, 25])) == 2


def test_nothing_known_leaves_parts_alone():
    plain = TensorDataset(torch.zeros(3))
    for dataset in (Subset(plain, [1]), ConcatDataset([plain, plain])):
        assert fastload.compile(dataset) is dataset


def test_an_index_out_of_range_names_the_users_dataset(folder):
    part = folder("train")
    for dataset in (ConcatDataset([part, part]), Subset(part, range(2000))):
        for index in (48, 1000):
            with pytest.raises(IndexError, match=r"^ImageFolder: index \d+ is out of range for 24 samples$"):
                fastload.compile(dataset).__getitems__([index])


def test_errors_of_a_compiled_dataset_name_the_users_class(folder):
    compiled = fastload.compile(folder("train"))
    with pytest.raises(OptionError, match="and ImageFolder has no state_dict"):
        DataLoader(compiled).load_state_dict({**DataLoader(compiled).state_dict(), "dataset": {}})
    with pytest.raises(OptionError, match="such as PackedDataset, got ImageFolder"):
        fastload.ShardedSampler(compiled, num_replicas=1, rank=0, window=2)


def test_a_split_says_what_was_compiled(folder):
    for part in map(fastload.compile, random_split(folder("somebody's function"), [10, 14])):
        assert isinstance(part, Subset)
        lines = part.explain().splitlines()
        assert lines[0] == "Subset of ImageFolder"
        steps = {line.split()[0]: line for line in lines}
        assert "while decoding" in steps["CenterCrop"]
        assert steps["Lambda"].endswith("not known")
        assert steps["RandomHorizontalFlip"].endswith("comes after Lambda")
        assert part.explain() in repr(part)
    part = fastload.compile(Subset(folder("train"), [1, 2]))
    assert repr(pickle.loads(pickle.dumps(part))) == repr(part)


def test_parts_of_a_compiled_dataset_are_compiled(folder):
    whole = fastload.compile(folder("train"))
    part, _ = random_split(whole, [10, 14])
    assert fastload.explain(part).splitlines()[0] == "Subset of ImageFolder"
    both = fastload.compile(ConcatDataset([whole, part]))
    images, _ = both.fetch_into([0, 24], HostMemory())
    assert len(images) == 2


def test_a_part_shares_its_attributes_with_the_given_one(folder):
    theirs = Subset(folder("train"), [1, 2, 3])
    theirs.note = "the training's"
    ours = fastload.compile(theirs)
    ours.epoch = ours.dataset.epoch = 3  # which neither has had
    assert (theirs.epoch, theirs.dataset.epoch) == (3, 3)
    theirs.indices = [4, 20]
    assert (ours.note, len(ours), ours[1][1]) == (theirs.note, 2, theirs[1][1])
    ours.indices = [7]
    assert len(theirs) == 1
    other = copy.copy(ours)
    other.indices = [1, 2]
    assert (len(other), len(ours), len(copy.deepcopy(other))) == (2, 1, 2)


def test_a_concatenation_describes_its_parts(folder):
    dataset = ConcatDataset(
        [folder("train"), Own(PIPELINES["train"][0]), folder("train"), TensorDataset(torch.zeros(1))]
    )
    lines = fastload.compile(dataset).explain().splitlines()
    assert lines[:2] == ["ConcatDataset", "  ImageFolder"]
    assert lines.count("  ImageFolder") == 2
    assert "  Own" in lines
    assert lines[-2:] == ["  TensorDataset", "    left as it is: none of its attributes is a known transform"]


def test_any_dataset_is_explained(folder, photos):
    import fastload.transforms as T

    theirs = folder("train")
    assert fastload.explain(theirs) == fastload.explain(fastload.compile(theirs))
    own = fastload.compile(Own(PIPELINES["train"][0]))
    assert [line.split()[0] for line in fastload.explain(own).splitlines()][:3] == [
        "Own", "transform:", "RandomResizedCrop"
    ]  # fmt: skip
    rewritten = fastload.FolderDataset(photos, transform=T.CenterCrop(20))
    unknown = Own(lambda image: image)
    for dataset, reason in (
        (rewritten, "its transform is not one of torchvision's"),
        (unknown, "no step of its transform would be made faster"),
        (Subset(unknown, [0]), "no step of its transform would be made faster"),
        (torch.utils.data.ChainDataset([]), "it is iterable, and not read by index"),
        ([1, 2], "none of its attributes is a known transform"),
    ):
        assert f"left as it is: {reason}" in fastload.explain(dataset) or reason in fastload.explain(dataset)
