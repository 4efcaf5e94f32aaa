"""The words for splits in the names of files and folders are the same in every layout."""

import pytest

from fastload.sources.splits import split_words, splits_in


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("cats_train-0001.tar", {"train"}),
        ("instances_Val2017", {"val"}),
        ("trainLabels", {"train"}),
        ("TRAINING", {"train"}),
        ("x_dev", {"val"}),
        ("image_info_test-dev2017", {"test"}),
        ("train_val", {"train", "val"}),
        ("trainval", set()),
        ("contest", set()),
        ("valley", set()),
    ],
)
def test_splits_are_found_in_a_name(name, splits):
    assert splits_in(name) == splits


def test_capitals_in_the_name_of_a_class_are_no_split():
    assert not split_words("Test tube", any_case=False)
    assert [word[0] for word in split_words("WIDER_train", any_case=False)] == ["train"]
