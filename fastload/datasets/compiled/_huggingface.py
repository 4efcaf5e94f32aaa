"""Datasets of Hugging Face's `datasets` whose rows a function of the user's transforms, compiled."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import datasets

from fastload.datasets.compiled._encoded import lazily_decoded
from fastload.datasets.compiled._reached import CompiledFunction


@dataclass(repr=False)
class _LazyImages(datasets.Image):  # type: ignore[misc]
    """A column of images that are decoded when their pixels are asked for, where that is the same."""

    def decode_example(self, value: Any, token_per_repo_id: Any = None) -> Any:
        """Return one image, as `datasets.Image` does."""

        def load() -> Any:
            return datasets.Image.decode_example(self, value, token_per_repo_id)

        data = value.get("bytes") if isinstance(value, dict) and self.mode in (None, "RGB") else None
        if data is None and isinstance(value, dict) and value.get("path") and self.mode in (None, "RGB"):
            data = _content(value["path"])
        lazy = None if data is None else lazily_decoded(data, load)
        return load() if lazy is None else lazy


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None  # it lies elsewhere, or the error is theirs


def with_lazy_images(dataset: Any) -> Any:
    """Return a copy of a dataset whose images are decoded late, for the function that transforms its rows.

    Returns:
        `dataset` itself if it has no such function, or no column of images.
    """
    format = dataset.format
    features = dataset.features.items()
    kinds = datasets.Image, _LazyImages  # which stay if another function is set
    columns = [name for name, feature in features if type(feature) in kinds and feature.decode]
    if format["type"] != "custom" or not columns:
        return dataset
    result = copy.copy(dataset)
    result.reset_format()
    result = copy.deepcopy(result)  # of what describes it; the rows are shared
    for name in columns:
        result.info.features[name] = _LazyImages(mode=dataset.features[name].mode)
    options = {name: format[name] for name in ("columns", "output_all_columns")}
    result.set_transform(CompiledFunction(format["format_kwargs"]["transform"]), **options)
    return result
