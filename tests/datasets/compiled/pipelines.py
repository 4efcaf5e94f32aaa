"""Pipelines as people write them, with torchvision's transforms."""

import torch
from torchvision import transforms
from torchvision.transforms import v2

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def _to_float(*steps):
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


def _to_float_v2(*steps):
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), v2.ToPureTensor()]
    return v2.Compose([v2.ToImage(), *steps, *last])


# Each with the largest difference in levels of 255: with bilinear resizes of PIL images two, for such noise.
PIPELINES = {
    "nothing but a tensor": (transforms.ToTensor(), 0),
    "train": (_to_float(transforms.RandomResizedCrop(48), transforms.RandomHorizontalFlip()), 2),
    "crops of which few fit": (
        _to_float(
            transforms.RandomResizedCrop(20, (0.7, 1.0), (0.1, 9.0)), transforms.RandomVerticalFlip(0.3)
        ),
        2,
    ),
    "padded crop and flip": (
        _to_float(transforms.RandomCrop(64, padding=20), transforms.RandomHorizontalFlip(0.7)),
        0,
    ),
    "crop of a resize v2": (
        _to_float_v2(v2.Resize(70, max_size=90), v2.RandomHorizontalFlip(), v2.CenterCrop((60, 50))),
        1,
    ),
    "evaluation": (_to_float(transforms.Resize(40), transforms.CenterCrop(32)), 2),
    "train v2": (
        _to_float_v2(v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()),
        1,
    ),
    "evaluation v2": (_to_float_v2(v2.Resize(40), v2.CenterCrop(32)), 1),
    "tensor first": (
        transforms.Compose([transforms.ToTensor(), transforms.Resize(40), transforms.CenterCrop(36)]),
        1,
    ),
    "bytes": (transforms.Compose([transforms.RandomCrop(20), transforms.PILToTensor()]), 0),
    "padded crop": (_to_float(transforms.RandomCrop(64, padding=8, pad_if_needed=True)), 0),
    "flip before crop": (_to_float(transforms.RandomHorizontalFlip(), transforms.RandomCrop(24)), 0),
    "resize twice": (_to_float(transforms.Resize(50), transforms.RandomResizedCrop(32)), 3),
    "bicubic": (_to_float(transforms.Resize(40, transforms.InterpolationMode.BICUBIC)), 40),
    "nearest": (_to_float(transforms.Resize(40, transforms.InterpolationMode.NEAREST)), 0),
    "nearest of tensors": (_to_float_v2(v2.Resize(40, v2.InterpolationMode.NEAREST)), 0),
    "nearest of tensors, by chance": (
        _to_float_v2(v2.RandomApply([v2.Resize(40, v2.InterpolationMode.NEAREST)], p=0.5)),
        0,
    ),
    "lanczos, which only PIL has": (
        _to_float(transforms.Resize(40, transforms.InterpolationMode.LANCZOS)),
        0,
    ),
    "containers": (
        _to_float(
            transforms.RandomApply(torch.nn.ModuleList([transforms.RandomResizedCrop(40)]), p=0.5),
            transforms.RandomChoice([transforms.RandomCrop(24), transforms.CenterCrop(24)]),
            transforms.RandomOrder([transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip()]),
        ),
        1,
    ),
    "containers v2": (
        _to_float_v2(
            v2.RandomApply([v2.RandomResizedCrop(40)], p=0.5),
            v2.RandomChoice([v2.RandomCrop(24), v2.CenterCrop(24)]),
            v2.RandomOrder([v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()]),
        ),
        1,
    ),
    "sequential": (
        torch.nn.Sequential(v2.CenterCrop(30), v2.PILToTensor(), transforms.ConvertImageDtype(torch.float32)),
        0,
    ),
    "erasing": (
        transforms.Compose([_to_float(transforms.RandomResizedCrop(40)), transforms.RandomErasing(p=0.9)]),
        2,
    ),
    "erasing with noise": (
        v2.Compose([_to_float_v2(v2.CenterCrop(40)), v2.RandomErasing(p=0.9, value="random")]),
        0,
    ),
    "bytes of bytes": (
        v2.Compose(
            [
                v2.ToImage(),
                v2.ToDtype(torch.uint8, scale=True),
                v2.RandomCrop(40, padding=[8], fill=100),
                v2.RandomGrayscale(0.5),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
                v2.RandomErasing(p=0.9),
                v2.ToPureTensor(),
            ]
        ),
        1,
    ),
    "noise, in the order of a tensor's memory": (
        v2.Compose(
            [
                v2.CenterCrop(40),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Lambda(lambda image: image + torch.randn_like(image)),
            ]
        ),
        0,
    ),
    "tensors that are not smoothed": (
        transforms.Compose([transforms.ToTensor(), transforms.Resize(40, antialias=None)]),
        0,
    ),
    "colours": (_to_float(transforms.CenterCrop(40), transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)), 30),
    "colours v2": (_to_float_v2(v2.CenterCrop(40), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)), 16),
    "greys": (_to_float(transforms.RandomGrayscale(0.5), transforms.RandomCrop(20)), 1),
    "greys of a padded crop": (
        _to_float(transforms.RandomCrop(150, padding=8, pad_if_needed=True), transforms.RandomGrayscale(0.5)),
        1,
    ),
    # Sharpening by 2 multiplies a level of the stretching.
    "stretched and sharpened": (
        _to_float(transforms.RandomAutocontrast(), transforms.RandomAdjustSharpness(2)),
        3,
    ),
    "blurred": (_to_float(transforms.CenterCrop(40), transforms.GaussianBlur(5)), 1),
    "levels looked up": (
        _to_float(
            transforms.RandomEqualize(),
            transforms.RandomInvert(),
            transforms.RandomPosterize(3),
            transforms.RandomSolarize(128),
        ),
        0,
    ),
    "grey tensor": (
        transforms.Compose([transforms.Grayscale(), transforms.CenterCrop(24), transforms.ToTensor()]),
        1,
    ),
    "grey in three channels": (
        v2.Compose(
            [
                v2.Grayscale(),
                v2.Resize((40, 40)),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
                v2.RandomErasing(p=0.9, value="random"),
            ]
        ),
        3,
    ),
    "grey by somebody's function": (
        v2.Compose(
            [
                transforms.Lambda(lambda image: image.convert("L")),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        ),
        0,
    ),
    "both generations": (
        v2.Compose(
            [
                v2.CenterCrop(40),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                transforms.Normalize(MEAN, STD),
            ]
        ),
        0,
    ),
    "both generations, dtypes": (
        v2.Compose([v2.ToImage(), transforms.ConvertImageDtype(torch.float32), v2.CenterCrop(40)]),
        0,
    ),
    "policy": (_to_float(transforms.CenterCrop(40), transforms.TrivialAugmentWide()), 0),
    "policy v2": (_to_float_v2(v2.CenterCrop(40), v2.RandAugment()), 0),
    "rotation, unknown": (_to_float(transforms.CenterCrop(40), transforms.RandomRotation(30)), 0),
    "somebody's function": (
        _to_float(
            transforms.CenterCrop(40),
            transforms.Lambda(lambda image: image.rotate(7)),
            transforms.RandomHorizontalFlip(),
        ),
        0,
    ),
    "tensors of somebody's function": (
        transforms.Compose(
            [
                transforms.CenterCrop(40),
                transforms.ToTensor(),
                lambda image: image * 2,
                transforms.RandomErasing(),
            ]
        ),
        0,
    ),
    "image, no tensor": (transforms.RandomResizedCrop(48), 1),
}
