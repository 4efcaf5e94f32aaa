"""A network of timm's trained with timm's dataset and transforms, and fastload's loader.

python train_timm.py photos/
"""

import argparse

import timm
import timm.data
import torch
from torch.nn.functional import cross_entropy

import fastload


def main(folder: str, size: int, epochs: int) -> None:
    """Train, print the loss after each epoch, and which transforms are done faster."""
    transform = timm.data.create_transform((3, size, size), is_training=True, re_prob=0.25)
    dataset = timm.data.create_dataset("", root=folder, transform=transform)
    loader = fastload.DataLoader(dataset, batch_size=64, shuffle=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = timm.create_model("resnet18", num_classes=len(dataset.reader.class_to_idx)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        for images, labels in loader:
            loss = cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(fastload.explain(loader.dataset))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of class folders")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=1)
    main(**vars(parser.parse_args()))
