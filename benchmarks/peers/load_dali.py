"""DALI's side of bench_load.py: its CPU pipeline, which needs no GPU.

Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from epochs import Loading, Stored, serve
from nvidia.dali import fn, pipeline_def, types

_READER = "files"


@pipeline_def
def photos(source: str, size: int, is_region: bool) -> tuple[Any, Any]:
    """Turn files into antialiased crops of `size` × `size` pixels, flipped: (height, width, channel), uint8.

    With `is_region` the decoder knows the crop and skips what it can of the rest.
    """
    files, labels = fn.readers.file(file_root=source, random_shuffle=True, name=_READER)
    if is_region:
        crops = fn.decoders.image_random_crop(files, output_type=types.RGB)
        images = fn.resize(crops, size=(size, size), antialias=True)
    else:
        pixels = fn.decoders.image(files, output_type=types.RGB)
        images = fn.random_resized_crop(pixels, size=(size, size), antialias=True)
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def prepare(job: Mapping[str, Any]) -> Loading:
    """Build the pipeline."""
    pipeline = photos(
        job["source"],
        job["size"],
        job["is_region"],
        batch_size=job["batch_size"],
        num_threads=job["workers"],
        device_id=None,
    )
    pipeline.build()
    batches = pipeline.epoch_size(_READER) // job["batch_size"]

    def epoch() -> Iterator[Any]:
        return (pipeline.run() for _ in range(batches))

    versions = {"DALI": version("nvidia-dali-cuda120")}
    return Loading(
        epoch, Stored(Path(job["source"])), versions, lambda batch: batch[0].as_tensor().shape()[0]
    )


if __name__ == "__main__":
    serve(prepare)
