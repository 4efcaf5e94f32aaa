"""A small network trained with Ray Train, on as many workers as the cluster has room for.

python train_ray.py photos/ --workers 4
"""

import argparse
import os

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, get_device, prepare_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

import fastload
import fastload.transforms as T


def train(config: dict) -> None:
    """Train as one of the workers, which are the ranks of torch.distributed.

    Ray pickles this function: beside the name `torch`, it would take `dataset.classes` for `torch.classes`.
    """
    augment = T.Compose([T.RandomResizedCrop(config["size"]), T.RandomHorizontalFlip(), T.ToTensor()])
    dataset = fastload.FolderDataset(config["folder"], transform=augment)
    # In place of prepare_data_loader: the loader shares out the epoch, and copies to the device.
    loader = fastload.DataLoader(dataset, 64, shuffle=True, seed=0, sharded=True, device=get_device())
    layers = [nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(8), nn.Flatten()]
    model = prepare_model(nn.Sequential(*layers, nn.Linear(32 * 64, len(dataset.classes))))
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(config["epochs"]):
        for images, labels in loader:
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ray.train.report({"epoch": epoch, "loss": loss.item()})
        if ray.train.get_context().get_world_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")


def main(folder: str, size: int, epochs: int, workers: int, storage: str | None) -> None:
    """Start the workers, and wait for them."""
    scaling = ScalingConfig(num_workers=workers, use_gpu=torch.cuda.is_available())
    config = {"folder": os.path.abspath(folder), "size": size, "epochs": epochs}
    run = RunConfig(name="fastload", storage_path=storage)
    TorchTrainer(train, train_loop_config=config, scaling_config=scaling, run_config=run).fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of class folders that all nodes have")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", help="a folder for Ray's records of the run")
    main(**vars(parser.parse_args()))
