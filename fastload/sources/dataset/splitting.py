"""Splitting of a dataset's samples into an image, if they have one, and named values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastload.errors import SourceError
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.sources.dataset.nested import described, dtype_name, flatten, is_pil

_INPUT = "input"  # the name of what is in the image's place in a sample without one

IF_NO_IMAGE = "or, if it is not an image, make each sample a dict that names it, as in {'input': …}"
"""The next step for a value that is taken for an image."""


def has_image(sample: object) -> bool:
    """Return True if a sample holds an image, or something in its place that could only be one.

    In a dict, that is `image`, `img` or the only PIL image; in a tuple, a first element that is a PIL image,
    a file's bytes, an array of three dimensions or of two in uint8 or uint16, or None, a missing image.
    """
    if isinstance(sample, Mapping):
        return _image_key(sample) is not None
    first = sample[0] if isinstance(sample, (tuple, list)) and sample else sample
    if first is None or isinstance(first, (bytes, bytearray, memoryview)) or is_pil(first):
        return True
    dimensions = len(getattr(first, "shape", ()))
    return dimensions == 3 or (dimensions == 2 and dtype_name(first) in ("uint8", "uint16"))


def split_sample(
    sample: object, target_name: str | None = None, *, has_image: bool = True
) -> tuple[object, dict[str, object]]:
    """Split a sample, `(image, target)` or a dict with `image`, into its image and its named values.

    A target that is a dict holds several values, as does each dict in it. Any other target is named
    `target_name` or, without one, `label` if it is an integer, else `target`. Several targets are named
    `target1`, `target2` and so on. In a dict without `image`, the image is `img` or the only PIL image.
    Without `has_image`, the image is None, and what a tuple has in its place, or a sample that is neither
    tuple nor dict, is named `input`.
    """
    if not has_image:
        return None, _split_without_image(sample, target_name)
    if isinstance(sample, Mapping) and (key := _image_key(sample)) is not None:
        return sample[key], flatten({name: value for name, value in sample.items() if name != key})
    if not isinstance(sample, (tuple, list)) or len(sample) < 2:
        must, step = "(image, target) or a dict with 'image'", "wrap the dataset in one whose samples are"
        raise SourceError(f"must be {must}, got {described(sample)}: {step}, {IF_NO_IMAGE}")
    image, *targets = sample
    return image, flatten(_named_targets(targets, target_name))


def sample_form(sample: object, names: Sequence[str]) -> str | list[str | list[str]] | None:
    """Return the form of a sample without image: its fields in the places of their values.

    None stands for a dict of all fields; a tuple is a list of its elements, a dict in it the list of its
    fields.
    """
    if isinstance(sample, Mapping):
        return None

    def part(name: str) -> str | list[str]:
        return name if name in names else [each for each in names if each.startswith(f"{name}_")]

    if not isinstance(sample, (tuple, list)):
        return names[0]
    if len(sample) == 1:
        return [list(names) if isinstance(sample[0], Mapping) else names[0]]
    first = part(_INPUT)
    if len(sample) > 2:
        return [first, *(part(f"target{number}") for number in range(1, len(sample)))]
    rest = [name for name in names if name not in ([first] if isinstance(first, str) else first)]
    return [first, rest if isinstance(sample[1], Mapping) or len(rest) != 1 else rest[0]]


def kept_as_arrays(sample: object) -> tuple[str, ...]:
    """Return a warning if a sample without image has values that look like images."""
    _, values = split_sample(sample, has_image=False)
    names = [name for name, value in values.items() if _looks_like_image(value)]
    if not names:
        return ()
    return (
        f"{', '.join(names)}: kept as {'an array' if len(names) == 1 else 'arrays'} or bytes, and not as "
        "an image, which transforms take: name it 'image' if it is one",
    )


def _looks_like_image(value: object) -> bool:
    if isinstance(value, (bytes, bytearray)):
        return format_of(bytes(value[:HEAD_BYTES])) is not None
    shape = tuple(getattr(value, "shape", ()))
    return len(shape) == 3 and dtype_name(value) == "uint8" and 3 in (shape[0], shape[2])


def _image_key(sample: Mapping[Any, object]) -> str | None:
    named = [name for name in ("image", "img") if name in sample]
    images = [name for name, value in sample.items() if is_pil(value)]
    return next(iter(named or (images if len(images) == 1 else [])), None)


def _split_without_image(sample: object, target_name: str | None) -> dict[str, object]:
    if isinstance(sample, Mapping):
        return flatten(sample)
    if not isinstance(sample, (tuple, list)):
        return flatten({target_name or _INPUT: sample})
    if not sample:
        raise SourceError("must be a tuple with elements, got an empty one: give each sample its values")
    first, *targets = sample
    named = _named_targets(targets, target_name) if targets else {}
    name = _INPUT if targets else target_name or _INPUT
    if name in named:
        raise SourceError(f"must have no target named {name!r}, which names the first element: rename it")
    return flatten({name: first, **named})


def _named_targets(targets: Sequence[object], target_name: str | None) -> Mapping[Any, object]:
    """Return the elements after the first of a sample by name."""
    if len(targets) > 1:
        return {f"target{number}": target for number, target in enumerate(targets, 1)}
    [target] = targets
    if isinstance(target, Mapping):
        return target
    is_list = isinstance(target, (list, tuple)) and any(isinstance(each, Mapping) for each in target)
    return {target_name or ("label" if not is_list and _is_integer(target) else "target"): target}


def _is_integer(value: object) -> bool:
    if isinstance(value, (int, np.integer)):
        return not isinstance(value, bool)
    return getattr(value, "shape", None) == () and dtype_name(value).startswith(("int", "uint"))
