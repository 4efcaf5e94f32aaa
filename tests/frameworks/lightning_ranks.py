"""Fits a module on two processes, with Lightning's strategy "ddp", which starts the second one by itself.

    python -m tests.frameworks.lightning_ranks FOLDER

Each rank writes FOLDER/RANK.json.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from torch.utils.data import Dataset, TensorDataset

import fastload
import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from tests.frameworks.batches import write

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lightning.pytorch as lightning


class Fitted(lightning.LightningModule):
    """Takes note of the batches that it is given; its own are the loaders for validation."""

    def __init__(self, folder: str, dataset: Dataset[Any]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.folder, self.dataset = folder, dataset
        self.seen: dict[str, list[list[list[int]]]] = {"train": [], "validate": []}

    def val_dataloader(self) -> Any:
        return fastload.DataLoader(self.dataset, 5, num_workers=1, device="cpu")

    def on_train_epoch_start(self) -> None:
        self.seen["train"].append([])

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        self.seen["train"][-1].append(batch[0].tolist())
        return self.layer(batch[0].float()[:, None]).sum()

    def on_validation_epoch_start(self) -> None:
        self.seen["validate"].append([])

    def validation_step(self, batch: Any, number: int) -> None:
        self.seen["validate"][-1].append(batch[0].tolist())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-4)

    def on_train_end(self) -> None:
        loaders = {"train": self.trainer.train_dataloader, "validate": self.trainer.val_dataloaders}
        described = {
            name: {
                "class": f"{type(loader).__module__}.{type(loader).__qualname__}",
                "sampler": type(loader.sampler).__qualname__,
                **{key: getattr(loader, key) for key in ("batch_size", "num_workers", "device", "seed")},
            }
            for name, loader in loaders.items()
        }
        write(f"{self.folder}/{self.global_rank}.json", {"seen": self.seen, "loaders": described})


def main(folder: str) -> None:
    """Fits for two epochs."""
    dataset = TensorDataset(torch.arange(22))
    loader = fastload.DataLoader(dataset, 4, shuffle=True, num_workers=1, device="cpu", seed=5)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(Fitted(folder, dataset), loader)


if __name__ == "__main__":
    main(sys.argv[1])
