"""A ResNet trained by Lightning, whose checkpoints hold the loader's position too.

python train_lightning.py photos/
"""

import argparse

import lightning
import torch
from torch.nn.functional import cross_entropy
from torchvision.models import resnet18

import fastload
import fastload.transforms as T


class Classifier(lightning.LightningModule):
    """A ResNet-18 with its loss and its optimizer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.model = resnet18(num_classes=classes)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        loss = cross_entropy(self.model(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer of all parameters."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Photos(lightning.LightningDataModule):
    """The photos of class folders."""

    def __init__(self, folder: str, size: int) -> None:
        super().__init__()
        augment = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToTensor()])
        self.dataset = fastload.FolderDataset(folder, transform=augment)

    def train_dataloader(self) -> fastload.DataLoader:
        """Return the loader, without device=, because Lightning moves batches itself."""
        return fastload.DataLoader(self.dataset, batch_size=64, shuffle=True, seed=0)


class LoaderTimes(lightning.Callback):
    """Logs the waits for data of each epoch beside the loss."""

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        """Log the figures of the loader's report."""
        scalars = trainer.train_dataloader.report().scalars
        module.log_dict({f"loader/{name}": value for name, value in scalars.items()})


def main(folder: str, size: int, epochs: int) -> None:
    """Train, and print the last loss."""
    photos = Photos(folder, size)
    trainer = lightning.Trainer(max_epochs=epochs, log_every_n_steps=1, callbacks=[LoaderTimes()])
    trainer.fit(Classifier(len(photos.dataset.classes)), photos)
    metrics = trainer.callback_metrics
    print(f"loss {metrics['loss']:.3f}, {metrics['loader/waiting_share']:.0%} of the time waiting for data")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of class folders")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=1)
    main(**vars(parser.parse_args()))
