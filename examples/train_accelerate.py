"""A ResNet trained with Accelerate, on one device or several.

python train_accelerate.py photos/
accelerate launch train_accelerate.py photos/
"""

import argparse

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from torchvision.models import resnet18

import fastload
import fastload.transforms as T


def main(folder: str, size: int, epochs: int) -> None:
    """Train, and print the loss after each epoch."""
    accelerator = Accelerator()
    augment = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToTensor()])
    dataset = fastload.FolderDataset(folder, transform=augment)
    # Accelerate makes a torch loader from this one, which chooses no number of workers.
    loader = fastload.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
    model = resnet18(num_classes=len(dataset.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(epochs):
        for images, labels in loader:
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of class folders")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=1)
    main(**vars(parser.parse_args()))
