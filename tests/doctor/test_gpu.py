"""The doctor on a real GPU: its utilisation, and a whole training."""

import json
import time

import pytest
import torch

from fastload.doctor.watching.machine import GpuWatch
from tests.commands import run
from tests.tools import NEEDS_CUDA

pytestmark = [pytest.mark.gpu, NEEDS_CUDA]

TRAINING = """
import torch, fastload
from torch import nn

class Made(torch.utils.data.Dataset):
    def __len__(self):
        return 64 * 60
    def __getitem__(self, index):
        return torch.full((3, 64, 64), index % 7 / 7), index % 7

layers = [nn.Conv2d(3, 256, 3), nn.ReLU(), *(nn.Conv2d(256, 256, 3) for _ in range(8))]
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 7)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
if __name__ == "__main__":
    for images, labels in fastload.DataLoader(Made(), 64, num_workers=2, device="cuda"):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_busy_gpu_is_read_as_busy():
    rows = torch.ones(4000, 4000, device="cuda")
    ends_at, watch = time.perf_counter() + 3, GpuWatch()
    while time.perf_counter() < ends_at:
        (rows @ rows).sum().item()
        watch.read()
    assert 0 < watch.share <= 1


def test_a_training_on_a_gpu_is_examined_whole(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    done = run("doctor", "--json", "--trial-seconds", "0", path)
    assert done.returncode == 0, done.stderr
    [part] = json.loads(done.stdout)["parts"]
    measured = part["measurements"]
    assert part["verdict"] == "model"
    assert measured["device"] == "cuda"
    assert measured["gpu_share"] > 0
