"""Saves an epoch, or continues it, as one of several gloo ranks, by torch, Accelerate and Lightning.

    python -m tests.frameworks.checkpointing_ranks save|resume RANK RANKS FOLDER WAY...

Each WAY (torch, accelerate, lightning) has its checkpoint in FOLDER/WAY; all samples that this rank was given
are written to FOLDER/STAGE-RANKS-RANK.json: those before saving, or the epoch's rest and the next epoch.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.distributed.checkpoint

import fastload
import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from tests.frameworks.batches import write

SAMPLES, BATCHES = 48, 3


def make_loader() -> Any:
    numbers = torch.arange(SAMPLES)
    return fastload.DataLoader(numbers, 2, shuffle=True, seed=4, num_workers=1, sharded=True)


def samples(batches: Iterable[torch.Tensor]) -> list[int]:
    return [number for batch in batches for number in batch.tolist()]


def by_torch(loader: Any, stage: str, folder: Path) -> list[list[int]]:
    """Uses the loader as what DCP calls stateful."""
    if stage == "save":
        seen = samples(itertools.islice(loader, BATCHES))
        torch.distributed.checkpoint.save({"loader": loader}, checkpoint_id=folder)
        return [seen]
    torch.distributed.checkpoint.load({"loader": loader}, checkpoint_id=folder)
    return [samples(loader), samples(loader)]


def by_accelerate(loader: Any, stage: str, folder: Path) -> list[list[int]]:
    """Registers the loader; the model alone is prepared."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    accelerator.prepare(torch.nn.Linear(1, 1))
    accelerator.register_for_checkpointing(loader)
    if stage == "save":
        seen = samples(itertools.islice(loader, BATCHES))
        accelerator.save_state(str(folder))
        return [seen]
    accelerator.load_state(str(folder))
    return [samples(loader), samples(loader)]


def by_lightning(loader: Any, stage: str, folder: Path) -> list[list[int]]:
    """Gives the loader to a Trainer, which saves it with everything else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lightning.pytorch as lightning

    class Noting(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.epochs: dict[int, list[int]] = {}

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            # As docs/distributed.md says: other ranks have other numbers of batches.
            counts = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
            counts.update({name: count - counts["ready"] for name, count in counts.items()})

        def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
            self.epochs.setdefault(self.current_epoch, []).extend(batch.tolist())
            return self.layer(batch[:, None].float()).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1e-5)

    save = lightning.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=BATCHES)
    ranks, module = torch.distributed.get_world_size(), Noting()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp",
        callbacks=[save] if stage == "save" else [],
        enable_checkpointing=stage == "save",
        **({"max_steps": BATCHES} if stage == "save" else {"max_epochs": 2}),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    path = folder / f"step={BATCHES}.ckpt" if stage == "resume" else None
    trainer.fit(module, loader, ckpt_path=path, weights_only=True)
    return list(module.epochs.values())


WAYS = {"torch": by_torch, "accelerate": by_accelerate, "lightning": by_lightning}


def main(stage: str, rank: int, ranks: int, folder: Path, ways: list[str]) -> None:
    # A launcher's variables, which frameworks read even though the group exists.
    variables = {"LOCAL_RANK": rank, "RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "localhost"}
    os.environ.update({name: str(value) for name, value in variables.items()})
    # Before torch.distributed is initialised, as in a script that leaves this to a framework.
    loaders = {way: make_loader() for way in ways}
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/{stage}-{ranks}", rank=rank, world_size=ranks
    )
    seen = {way: WAYS[way](loaders[way], stage, folder / way) for way in ways}
    write(folder / f"{stage}-{ranks}-{rank}.json", seen)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
