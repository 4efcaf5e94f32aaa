"""Writing of BigGAN's HDF5 files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from fastload.images.decode import decode
from fastload.sources.stored_records import StoredRecords, drafted, safe_path


def write_hdf5(records: StoredRecords, root: Path) -> list[Path]:
    """Write the file of a dataset under its name below root."""
    details = records.details
    path = safe_path(root, details["files"][0])
    labels: list[int] = []
    with drafted(path) as draft, h5py.File(draft, "x") as file:
        for record, files in records:
            pixels = decode(files["image"][0]).transpose(2, 0, 1)
            if not labels:
                shape, chunks = (len(records), *pixels.shape), details["chunks"]
                images = file.create_dataset("imgs", shape, np.uint8, chunks=chunks and tuple(chunks))
            images[len(labels)] = pixels
            labels.append(record["label"])
        if labels and len(labels) < len(records):  # some are damaged
            intact = images[: len(labels)]
            del file["imgs"]
            file.create_dataset("imgs", data=intact)
        file.create_dataset("labels", data=np.array(labels, details["labels"]))
    return [path]
