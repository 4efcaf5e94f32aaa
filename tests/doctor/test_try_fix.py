"""Trying a fix: the first one of arguments, for the loader that is waited for most, in a second run."""

from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader, Subset

import fastload
from fastload.doctor._judge import diagnose
from fastload.doctor._watch import Watcher
from fastload.doctor.examine import Examination, ScriptReport
from fastload.doctor.try_fix import changed_loaders, try_first_fix
from fastload.system.script import Ending
from tests.doctor.situations import make_photos
from tests.doctor.test_judge import seen, training, trial
from tests.doctor.train import Files, torchvision_augment

SCRIPT = """
import sys
from torch.utils.data import DataLoader
class Training(list): pass
class Testing(list): pass
list(DataLoader(Training(range(64)), 8))
loader = DataLoader(Testing(range(64)), 8)
print(loader.num_workers, file=sys.stderr)
list(loader)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def report(**parts):
    found = [
        Examination(f"{name} of 64 samples", measured, diagnose(measured), number)
        for number, (name, measured) in enumerate(parts.items())
    ]
    return ScriptReport(tuple(found), Ending(None), was_cut=False, batches=16, notes=())


def test_the_longest_waits_first_fix_is_tried_that_needs_no_other_dataset(script, capfd):
    trials = (trial("workers", 1, 500.0), trial("pack", 0, 9000.0, encoding="raw"))
    slow = training(trials=trials, role="evaluation")
    fast = training(wait_s=0.01, step_s=0.001, trials=(trial("workers", 3, 9e9),))
    tried = try_first_fix(report(Training=fast, Testing=slow), script, is_module=False, arguments=[])
    assert tried.fix == diagnose(slow).fixes[1]
    assert [fix.kind for fix in diagnose(slow).fixes[:2]] == ["pack", "workers"]
    assert tried.fix.arguments == {"num_workers": 1}
    assert (tried.before_per_s, tried.batches, tried.error) == (slow.overall_per_s, 16, "")
    assert tried.after_per_s > 0
    assert capfd.readouterr().err.strip().endswith("1")


def test_fixes_without_arguments_are_not_tried(script):
    measured = training(loading=seen(transform=8.0))
    assert "No fix can be tried" in try_first_fix(
        report(Training=measured), script, is_module=False, arguments=[]
    )


class OwnLoader(DataLoader):
    pass


@pytest.mark.parametrize("kind", ["loader", "compile"])
def test_fastloads_loader_is_not_tried_in_place_of_a_class_of_the_scripts_own(script, tmp_path, kind):
    """To be tried, its base class would have to be replaced."""
    watcher = Watcher(tmp_path)
    with watcher.watching():
        list(OwnLoader(range(4), 2))
    [record] = watcher.records
    own = record.measured([], training().machine).own_class
    measured = training(2, trials=(trial(), trial(kind, 2, 9000.0)), own_class=own, command="train.py")
    refusal = try_first_fix(report(Training=measured), script, is_module=False, arguments=[])
    assert refusal.startswith("No fix can be tried without a change to the code")
    assert "as the base class of OwnLoader" in refusal


@pytest.fixture
def dataset(tmp_path):
    return Files(make_photos(tmp_path / "photos", 4, 32, 32), "pil", torchvision_augment(), 4)


@pytest.mark.parametrize("kind", [DataLoader, fastload.DataLoader])
def test_loaders_of_one_class_of_dataset_are_compiled(kind, dataset):
    changes = {"class": "fastload.DataLoader", "compile": True}
    with changed_loaders(changes, "Files"):
        changed, other = kind(dataset, 2, num_workers=0), kind(Subset(dataset, [0]), num_workers=0)
    assert type(changed) is fastload.DataLoader
    assert type(changed.dataset.transform).__name__ == "CompiledTransform"
    assert type(other) is kind
    assert other.dataset.dataset is dataset
    [(images, _), _] = changed
    assert images.shape == (2, 3, 224, 224)


def test_arguments_that_need_workers_are_left_out_without_them():
    with changed_loaders({"num_workers": 0}, "SimpleNamespace"):
        loader = DataLoader(SimpleNamespace(), num_workers=2, prefetch_factor=4, persistent_workers=True)
    assert (loader.num_workers, loader.prefetch_factor) == (0, None)
