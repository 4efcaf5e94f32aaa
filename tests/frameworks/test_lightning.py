"""Lightning: fitting, making a loader anew for ranks, and checkpoints within an epoch."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data
from torch.utils.data import DistributedSampler, TensorDataset

import fastload
from tests.frameworks.batches import read, seed_all
from tests.loader.datasets import Random, Rows, assert_same
from tests.tools import imported

pytestmark = [
    pytest.mark.frameworks("lightning"),
    # It calls a deprecated function of torch's.
    pytest.mark.filterwarnings(r"ignore:.isinstance\(treespec, LeafSpec\):FutureWarning"),
    # What it advises on speed depends on the machine.
    pytest.mark.filterwarnings(r"ignore:The '.*dataloader' does not have many workers"),
    # A fit that is resumed saves nothing here.
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used"),
]

LOADERS = (torch.utils.data.DataLoader, fastload.DataLoader)


@pytest.fixture(scope="module")
def lightning() -> Any:
    return imported("lightning.pytorch")


class Fitting:
    """Fits a module that takes note of its batches, in a folder of its own."""

    def __init__(self, lightning: Any, folder: Path) -> None:
        class Noting(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
                self.trained: list[Any] = []
                self.validated: list[Any] = []

            def training_step(self, batch: Any, number: int) -> torch.Tensor:
                self.trained.append(batch)
                # As dropout does, it draws from torch's global generator.
                return self.layer(batch[0].flatten()[:1].float() + torch.rand(1)).sum()

            def validation_step(self, batch: Any, number: int) -> None:
                self.validated.append(batch)

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), 1e-4)

        self.lightning, self.module, self.folder = lightning, Noting, folder

    def __call__(self, *loaders: Any, resume: Path | None = None, save_after: int = 0, **options: Any) -> Any:
        """Returns the module; saves a checkpoint after every `save_after` steps, if that is not 0."""
        module = self.module()
        self.trainer(save_after, **options).fit(module, *loaders, ckpt_path=resume, weights_only=True)
        return module

    def trainer(self, save_after: int = 0, **options: Any) -> Any:
        callbacks = self.lightning.callbacks
        save = callbacks.ModelCheckpoint(self.folder, "{step}", save_top_k=-1, every_n_train_steps=save_after)
        return self.lightning.Trainer(
            **options,
            accelerator="cpu",
            callbacks=[save] if save_after else [],
            enable_checkpointing=bool(save_after),
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=self.folder,
        )


@pytest.fixture
def fit(lightning, tmp_path) -> Fitting:
    return Fitting(lightning, tmp_path)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_fit_sees_torchs_batches(fit, workers, is_persistent):
    results = []
    for kind in LOADERS:
        seed_all(1)
        options = {"num_workers": workers, "persistent_workers": is_persistent and workers > 0}
        train = kind(Random(20, 50), batch_size=4, shuffle=True, **options)
        validate = kind(Random(9, 50), batch_size=4, **options)
        module = fit(train, validate, max_epochs=2)
        assert len(module.trained) == 10
        results.append([module.trained, module.validated])
    assert_same(*results)


@pytest.mark.parametrize("package", ["lightning.pytorch", "lightning.fabric"])
def test_loader_made_anew_keeps_every_argument(package):
    imported(package)
    make_anew = importlib.import_module(f"{package}.utilities.data")._update_dataloader
    kept = {
        "dataset": Rows(20, 50),
        "num_workers": 2,
        "collate_fn": list,
        "drop_last": True,
        "timeout": 7,
        "worker_init_fn": print,
        "multiprocessing_context": torch.multiprocessing.get_context("spawn"),
        "prefetch_factor": 3,
        "persistent_workers": True,
        "in_order": False,
        "batch_size": 3,
        "device": "cpu",
        "cache": None,
        "seed": 5,
    }
    sampler = DistributedSampler(kept["dataset"], 2, 1)
    anew = make_anew(fastload.DataLoader(**kept, shuffle=True), sampler)
    assert type(anew) is fastload.DataLoader
    assert {name: getattr(anew, name) for name in kept} == kept
    assert anew.sampler is sampler


@pytest.mark.soak
def test_ranks_get_their_parts_from_loaders_made_anew(lightning, run_programs, tmp_path):
    run_programs(("lightning_ranks", tmp_path))
    numbers = TensorDataset(torch.arange(22))
    for rank in range(2):
        result = read(tmp_path / f"{rank}.json")
        common = {
            "class": "fastload.loader.dataloader.DataLoader",
            "sampler": "DistributedSampler",
            "num_workers": 1,
            "device": "cpu",
        }
        assert result["loaders"] == {
            "train": {**common, "batch_size": 4, "seed": 5},
            "validate": {**common, "batch_size": 5, "seed": None},
        }
        for name, shuffle, batch_size in (("train", True, 4), ("validate", False, 5)):
            sampler = DistributedSampler(numbers, 2, rank, shuffle=shuffle)
            expected = []
            for epoch in range(2):
                sampler.set_epoch(epoch)
                loader = torch.utils.data.DataLoader(numbers, batch_size, sampler=sampler)
                expected.append([batch[0].tolist() for batch in loader])
            assert result["seen"][name] == expected


NUMBERS = TensorDataset(torch.arange(24))
ORDERS = {
    "seed": lambda: {"seed": 3},
    "generator": lambda: {"generator": torch.Generator().manual_seed(3)},
    "global": dict,
}


def loaders(order: str, workers: int = 0) -> tuple[Any, Any]:
    """Six batches to train with, three to validate with."""
    train = fastload.DataLoader(NUMBERS, 4, shuffle=True, num_workers=workers, **ORDERS[order]())
    return train, fastload.DataLoader(NUMBERS, 8)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_checkpoint_within_an_epoch_goes_on_with_the_next_batch(fit, order, workers):
    seed_all(1)
    whole = fit(*loaders(order, workers), max_epochs=3, save_after=4)
    for step in (4, 8):
        saved = fit.folder / f"step={step}.ckpt"
        held = torch.load(saved, weights_only=True)["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        assert [state["position"] for state in held] == [step % 6]
        seed_all(99)
        resumed = fit(*loaders(order, workers), resume=saved, max_epochs=3)
        assert len(resumed.trained) == 18 - step
        # Orders drawn from the global state change with whatever else draws from it, as does the module.
        end = -step % 6 if order == "global" else None
        assert_same(resumed.trained[:end], whole.trained[step:][:end])


@pytest.mark.parametrize(
    "length",
    [
        pytest.param(
            {"max_epochs": 3},
            marks=pytest.mark.xfail(
                raises=AssertionError,
                reason="the epoch's empty rest is handed out, and Lightning takes it for the next epoch",
            ),
        ),
        {"max_epochs": -1, "max_steps": 18},
    ],
    ids=["epochs", "steps"],
)
def test_checkpoint_after_an_epochs_last_batch_goes_on_with_the_next_epoch(fit, length):
    whole = fit(*loaders("seed"), save_after=6, **length)
    resumed = fit(*loaders("seed"), resume=fit.folder / "step=6.ckpt", **length)
    assert_same(resumed.trained, whole.trained[6:])


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
@pytest.mark.parametrize("is_hook", [False, True])
def test_a_sharded_loader_is_made_again_for_prediction_and_overfitting(fit, is_hook):
    def loader(shuffle: bool) -> Any:
        return fastload.DataLoader(NUMBERS, batch_size=4, shuffle=shuffle, num_workers=0, sharded=True)

    class Hooked(fit.module):
        def predict_step(self, batch: Any, number: int) -> Any:
            return batch[0].tolist()

        if is_hook:
            predict_dataloader, train_dataloader = lambda self: loader(False), lambda self: loader(True)

    fit.module = Hooked
    predicted = fit.trainer().predict(Hooked(), *([] if is_hook else [loader(False)]))
    assert predicted == [batch[0].tolist() for batch in loader(False)]
    with pytest.warns(UserWarning, match="requested to overfit"):
        trained = fit(*([] if is_hook else [loader(True)]), max_epochs=2, overfit_batches=2).trained
    assert [batch[0].tolist() for batch in trained] == 2 * [[0, 1, 2, 3], [4, 5, 6, 7]]
