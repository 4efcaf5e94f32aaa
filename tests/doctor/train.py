"""Training for the doctor's tests, slowed down as its arguments say."""

import argparse
import io
import json
import os
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset, Subset

import fastload


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="")
    parser.add_argument("--packed", default="")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--decoder", default="pil")
    parser.add_argument("--transform", default="none")
    parser.add_argument("--step", default="light")
    parser.add_argument("--log", default="none")
    parser.add_argument("--log-every", type=int, default=1)
    parser.add_argument("--out", default="")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--fastload", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--collate", default="default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--times", default="")
    parser.add_argument("--warm-up", type=float, default=0.0)
    parser.add_argument("--evaluate", default="")
    return parser.parse_args()


def resized(image):
    return torch.from_numpy(cv2.resize(np.asarray(image), (64, 64)))


OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


def no_transform(image):
    return resized(image)


def sleeping_augment(image):
    time.sleep(0.01)
    return resized(image)


def numpy_augment(image):
    noise = np.random.default_rng(0).standard_normal((300, 300))
    for _ in range(12):
        noise = np.sin(noise)
    return resized(image)


def python_augment(image):
    total = 0
    for value in range(100_000):
        total += value % 7
    return resized(image)


def blurring_augment(image):
    blurred = Image.fromarray(cv2.resize(np.asarray(image), (300, 300))).filter(ImageFilter.GaussianBlur(8))
    return resized(blurred)


def cropping_augment(image):
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    width, height = image.size
    box = (width // 6, height // 6, width - width // 6, height - height // 6)
    pixels = np.array(image.crop(box).resize((176, 176), Image.Resampling.BILINEAR))
    return torch.from_numpy(pixels).permute(2, 0, 1).float().div(255)


def torchvision():
    # A torchvision built for CUDA lacks its operators beside a torch for CPUs.
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision.datasets
    import torchvision.transforms

    return torchvision


def torchvision_augment():
    steps = torchvision().transforms
    normalize = steps.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    flip = steps.RandomHorizontalFlip()
    return steps.Compose([steps.RandomResizedCrop(224), flip, steps.ToTensor(), normalize])


TRANSFORMS = {
    "crop": cropping_augment,
    "none": no_transform,
    "sleep": sleeping_augment,
    "numpy": numpy_augment,
    "python": python_augment,
    "blur": blurring_augment,
}


class Files(Dataset):
    """Images in a folder."""

    def __init__(self, folder, decoder, transform, samples):
        files = sorted(Path(folder).rglob("*.jpg"))
        self.paths = [str(files[number % len(files)]) for number in range(samples)]
        self.decoder = decoder
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        if self.decoder == "cv2":
            image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        elif self.decoder == "bytes":
            with open(path, "rb") as file:
                data = file.read()
            image = np.frombuffer(data[:3072], np.uint8).reshape(32, 32, 3)
        elif self.decoder == "buffer":
            with open(path, "rb") as file:
                data = file.read()
            image = Image.open(io.BytesIO(data)).convert("RGB")
        else:
            image = Image.open(path).convert("RGB")
        return self.transform(image), index % 10


class Made(Dataset):
    """Samples that cost only their transform, or are large tensors."""

    def __init__(self, kind, transform, samples):
        side = 768 if kind == "large" else 64
        self.kind = kind
        self.image = np.full((side, side, 3), 7, np.uint8)
        self.large = torch.ones(3, side, side)
        self.transform = transform
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        if self.kind == "large":
            return self.large, index % 10
        if self.kind == "uneven" and index % 64 == 3:
            time.sleep(0.5)
        return self.transform(self.image), index % 10


def slow_collate(samples):
    images = []
    for image, _ in samples:
        value = image.numpy().astype(np.float64)
        for _ in range(60):
            value = np.sin(value)
        images.append(torch.from_numpy(value))
    return torch.stack(images), torch.tensor([label for _, label in samples])


class Model(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.warm_up_s = 0.0
        width = {"linear": 1500, "conv": 8}.get(kind, 16)
        if kind == "conv":
            convolve = torch.nn.Conv2d
            self.layers = torch.nn.Sequential(
                convolve(3, 48, 3, padding=1),
                torch.nn.ReLU(),
                convolve(48, 48, 3, padding=1),
                torch.nn.ReLU(),
            )
        else:
            self.layers = torch.nn.Sequential(torch.nn.Linear(192, width), torch.nn.Linear(width, width))
            if kind == "linear":
                for _ in range(6):
                    self.layers.append(torch.nn.Linear(width, width))

    def forward(self, images):
        time.sleep(self.warm_up_s)
        self.warm_up_s = 0.0
        if self.kind == "sleep":
            time.sleep(0.05)
        images = images.float().reshape(len(images), -1)
        if self.kind == "conv":
            return self.layers(images[:, : 3 * 64 * 64].reshape(-1, 3, 64, 64)).mean((2, 3))
        return self.layers(images[:, :192])


class Journal:
    """Writes the log of a training run."""

    def __init__(self, kind, folder):
        self.kind = kind
        self.folder = folder

    def log(self, step, loss, model):
        if self.kind == "fsync":
            with open(os.path.join(self.folder, "log.txt"), "a") as file:
                for _ in range(120):
                    file.write(f"{step} {loss}\n")
                    file.flush()
                    os.fsync(file.fileno())
        elif self.kind == "sleep":
            time.sleep(0.03)
        elif self.kind == "json":
            values = {name: value.flatten()[:30000].tolist() for name, value in model.state_dict().items()}
            values["history"] = list(range(300_000))
            with open(os.path.join(self.folder, "log.json"), "w") as file:
                json.dump(values, file)
        elif self.kind == "checkpoint":
            weights = {"model": model.state_dict(), "extra": torch.zeros(4_000_000)}
            torch.save(weights, os.path.join(self.folder, "checkpoint.pt"))


def dataset_of(given):
    named = given.transform
    transform = torchvision_augment() if named == "torchvision" else TRANSFORMS[named]
    images = None
    if given.packed:
        images = fastload.PackedDataset(given.packed, transform=transform)
    elif given.decoder == "folder":
        images = fastload.FolderDataset(given.data, transform=transform)
    elif given.decoder == "imagefolder":
        images = torchvision().datasets.ImageFolder(given.data, transform)
    if images is not None:
        return Subset(images, [number % len(images) for number in range(given.samples)])
    if given.data in ("made", "large", "uneven"):
        return Made(given.data, transform, given.samples)
    return Files(given.data, given.decoder, transform, given.samples)


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        for images, _labels in loader:
            model(images)
    model.train()


def main():
    given = options()
    torch.manual_seed(0)
    # On a busy machine, threads that wait for each other would slow down a light step.
    torch.set_num_threads(given.threads)
    kind = DataLoader
    if given.fastload:
        kind = fastload.DataLoader
    arguments = {"persistent_workers": True} if given.persistent else {}
    if given.compile:
        arguments["compile"] = True
    if given.collate == "slow":
        arguments["collate_fn"] = slow_collate
    loader = kind(dataset_of(given), batch_size=given.batch, num_workers=given.workers, **arguments)
    model = Model(given.step)
    model.warm_up_s = given.warm_up
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    journal = Journal(given.log, given.out)
    step, first, began, last = 0, None, time.perf_counter(), 0.0
    for _ in range(given.epochs):
        for images, _labels in loader:
            loss = model(images).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % given.log_every == 0:
                journal.log(step, loss.item(), model)
            step += 1
            last = time.perf_counter()
            # Time that only the first step takes is not part of a steady step.
            first = first or last
            if step >= given.steps:
                break
        if given.evaluate:
            evaluate(model, kind(Files(given.evaluate, "pil", no_transform, 24), batch_size=given.batch))
        if step >= given.steps:
            break
    if given.times:
        steady_s = (last - first) / max(1, step - 1) / given.batch
        whole_s = (time.perf_counter() - began) / max(1, step) / given.batch
        Path(given.times).write_text(json.dumps({"steady_s": steady_s, "whole_s": whole_s}))


if __name__ == "__main__":
    # The situations' figures for starting workers are for forked ones, on any Python.
    torch.multiprocessing.set_start_method("fork")
    main()
