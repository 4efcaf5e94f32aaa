"""A ResNet trained by a Learner of fastai, with fastload's loaders.

python train_fastai.py photos/
"""

import argparse

from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy
from torch.utils.data import Subset
from torchvision.models import resnet18

import fastload
import fastload.transforms as T


def main(folder: str, size: int, epochs: int) -> None:
    """Train on four fifths of the images, and print the loss and accuracy on the rest."""
    augment = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToTensor()])
    plain = T.Compose([T.Resize((size, size)), T.ToTensor()])
    train, valid = (fastload.FolderDataset(folder, transform=each) for each in (augment, plain))
    held_out = set(range(0, len(train), 5))
    kept = [index for index in range(len(train)) if index not in held_out]
    loaders = DataLoaders(
        fastload.DataLoader(Subset(train, kept), batch_size=64, shuffle=True),
        fastload.DataLoader(Subset(valid, sorted(held_out)), batch_size=64),
    )
    model = resnet18(num_classes=len(train.classes))
    learner = Learner(loaders, model, loss_func=CrossEntropyLossFlat(), metrics=accuracy)
    learner.fit(epochs, lr=1e-3)
    loss, share = learner.validate()
    print(f"loss {loss:.3f}, accuracy {share:.0%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of class folders")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=1)
    main(**vars(parser.parse_args()))
