"""A ResNet trained by several processes from one packed dataset, resumed after an interruption.

sbatch slurm.sh                                                        # by Slurm
torchrun --nproc-per-node 2 train_distributed.py photos.fl             # on one machine
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18

import fastload
import fastload.transforms as T

# The names that torch reads, and those that Slurm sets.
RANKS = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}


def main(packed: str, size: int, epochs: int, checkpoint: Path) -> None:
    """Train this rank's part of each epoch; rank 0 prints the loss, and saves after each epoch."""
    for name, slurms in RANKS.items():
        if name not in os.environ:
            os.environ[name] = os.environ[slurms]
    has_gpu = torch.cuda.is_available()
    torch.distributed.init_process_group("nccl" if has_gpu else "gloo")
    rank = torch.distributed.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)

    augment = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToTensor()])
    dataset = fastload.PackedDataset(packed, transform=augment)
    loader = fastload.DataLoader(dataset, 64, shuffle=True, seed=0, sharded=True, device=device)
    network = resnet18(num_classes=len(dataset.classes)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        first = saved["epoch"] + 1
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    for epoch in range(first, epochs):
        for images, labels in loader:
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
            saved = {
                "epoch": epoch,
                "network": network.state_dict(),
                "optimizer": optimizer.state_dict(),
                "loader": loader.state_dict(),
            }
            torch.save(saved, checkpoint.with_suffix(".partial"))
            checkpoint.with_suffix(".partial").replace(checkpoint)
    torch.distributed.barrier()
    del model  # torch 2.13 may hang if the group goes first
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packed", help="a dataset that fastload has packed")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, default="checkpoint.pt")
    main(**vars(parser.parse_args()))
