"""Typical pipelines of training transforms."""

import torch

import fastload.transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

PIPELINES = {
    "train": T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip()]),
    "train, linear": T.Compose([T.RandomResizedCrop(48, antialias=False), T.RandomVerticalFlip()]),
    "train, flipped first": T.Compose([T.RandomHorizontalFlip(), T.RandomResizedCrop((40, 56))]),
    "evaluation": T.Compose([T.Resize(40), T.CenterCrop(32)]),
    "crop after resize": T.Compose([T.Resize(50), T.RandomCrop(32, padding=4), T.RandomVerticalFlip()]),
    "crop that fits": T.Compose([T.CenterCrop(32), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]),
    "crop that pads": T.Compose([T.CenterCrop(100)]),
    "normalised": T.Compose(
        [T.RandomResizedCrop(32), T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    ),
    "half": T.Compose([T.Resize((24, 24)), T.ToDtype(torch.float16, scale=True)]),
    "numbers in between": T.Compose(
        [T.Resize((24, 24)), T.ToDtype(torch.float32, scale=True), T.RandomHorizontalFlip(), T.Pad(2)]
    ),
    "nested": T.Compose([T.Compose([T.Resize((30, 30))]), T.RandomApply([T.RandomHorizontalFlip(1.0)])]),
    "grey": T.Compose([T.Resize((24, 24)), T.RandomHorizontalFlip(), T.Grayscale(1)]),
    "grey numbers": T.Compose(
        [T.Resize((24, 24)), T.Grayscale(1), T.ToDtype(torch.float32, scale=True), T.Normalize([0.5], [0.5])]
    ),
    "colours": T.Compose(
        [T.RandomResizedCrop(40), T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1)]), T.RandomErasing()]
    ),
    "policy": T.Compose([T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.RandAugment()]),
    "policy, then numbers": T.Compose(
        [
            T.RandomResizedCrop(40),
            T.TrivialAugmentWide(),
            T.ToDtype(torch.float32, scale=True),
            T.Normalize(MEAN, STD),
            T.RandomErasing(p=1.0, value="random"),
        ]
    ),
    "turned": T.Compose(
        [T.Resize(40), T.RandomRotation(20), T.RandomAffine(5, (0.1, 0.1)), T.CenterCrop(32)]
    ),
    "one": T.RandomResizedCrop(16, interpolation="bicubic"),
    "as with torchvision": T.Compose(
        [T.Resize((40, 44)), T.RandomCrop(32), T.ToTensor(), T.Normalize(MEAN, STD), T.RandomErasing(p=1.0)]
    ),
    "as with torchvision's second version": T.Compose(
        [
            T.ToImage(),
            T.RandomResizedCrop(32),
            T.RandomHorizontalFlip(),
            T.AutoAugment(),
            T.ToDtype(torch.float32, scale=True),
            T.Normalize(MEAN, STD),
            T.ToPureTensor(),
        ]
    ),
    "by chance": T.Compose(
        [
            T.RandomShortestSize([40, 50]),
            T.CenterCrop(40),
            T.RandomChoice([T.RandomInvert(), T.RandomPhotometricDistort()]),
            T.RandomOrder([T.RandomPerspective(), T.RandomHorizontalFlip(), T.RandomEqualize()]),
            T.GaussianNoise(sigma=0.02),
        ]
    ),
}
TINY_PIPELINES = {
    "cifar": T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()]),
    "turned and resized": T.Compose([T.RandomRotation(40, expand=True), T.Resize((32, 32))]),
    "cifar, mirrored edges": T.Compose([T.RandomCrop(32, padding=4, padding_mode="reflect")]),
    "cifar, coloured edges": T.Compose([T.RandomCrop(32, padding=(1, 2, 3, 4), fill=(9, 8, 7))]),
    "only a crop": T.Compose([T.RandomCrop(24), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]),
    "nothing": None,
    "blurred and grey": T.Compose([T.RandomCrop(30), T.GaussianBlur(3), T.RandomGrayscale(0.5)]),
    "resized": T.Compose([T.Resize(20), T.RandomHorizontalFlip()]),
    "cifar, as with torchvision": T.Compose(
        [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)]
    ),
    "cifar, mixed": T.Compose([T.RandomCrop(32, padding=4), T.AugMix(), T.RandomChannelPermutation()]),
    "cifar, normalised": T.Compose(
        [
            T.RandomCrop(32, padding=4),
            T.RandomHorizontalFlip(),
            T.ToDtype(torch.float32, scale=True),
            T.Normalize(MEAN, STD),
        ]
    ),
}
