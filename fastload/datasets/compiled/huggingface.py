"""Compilation of Hugging Face datasets whose rows are transformed by a user function."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import datasets
import PIL.Image

from fastload.datasets.compiled.late_files import lazily_decoded
from fastload.datasets.compiled.pipeline import CompiledCode


@dataclass(repr=False)
class _LazyImages(datasets.Image):  # type: ignore[misc]
    """A column of images that are decoded on first use, if that gives the same pixels."""

    most_levels: float = math.inf

    def decode_example(self, value: object, token_per_repo_id: object = None) -> PIL.Image.Image:
        def load() -> PIL.Image.Image:
            return datasets.Image.decode_example(self, value, token_per_repo_id)

        file = None
        if isinstance(value, dict) and self.mode in (None, "RGB"):
            file = value.get("path") if value.get("bytes") is None else value["bytes"]
        return lazily_decoded(file, load, self.most_levels) if file else load()


def with_lazy_images(dataset: Any, most_levels: float) -> Any:
    """Return a copy of a dataset whose images are decoded when the function that transforms rows uses them.

    Returns `dataset` itself if it has no such function, or no column of images.
    """
    format = dataset.format
    features = dataset.features.items()
    kinds = datasets.Image, _LazyImages  # the latter remain if another function is set
    columns = [name for name, feature in features if type(feature) in kinds and feature.decode]
    if format["type"] != "custom" or not columns:
        return dataset
    result = copy.copy(dataset)
    result.reset_format()
    result = copy.deepcopy(result)  # copies only the description: the rows are shared
    for name in columns:
        result.info.features[name] = _LazyImages(mode=dataset.features[name].mode, most_levels=most_levels)
    options = {name: format[name] for name in ("columns", "output_all_columns")}
    result.set_transform(CompiledCode(format["format_kwargs"]["transform"], most_levels), **options)
    return result
