"""A dataset of many records takes no more memory than one of few."""

import pickle
import sys

import numpy as np
import pytest
import torch
import torch.utils.data

import fastload
from fastload import Field, PackedDataset
from fastload.shards.checksum import apply_masks, array_crc32c, file_crc32c, identity_crc, record_crc32c
from fastload.shards.container import Payload, Ragged, ShardContent
from fastload.shards.hdf5 import WRITER
from fastload.shards.manifest import Manifest, ShardEntry
from fastload.shards.schema import CRC32C, record_columns
from tests.commands import run_python


def _write_pixels(path, count, shard_records):
    """Write 1 × 1 images without packing: image i is (i, i >> 8, i >> 16), its label i % 1000."""
    fields = (Field("image", "image", encoding="raw"), Field.label())
    columns, entries = record_columns(fields), []
    path.mkdir()
    for number, begin in enumerate(range(0, count, shard_records)):
        indices = np.arange(begin, min(begin + shard_records, count))
        size = len(indices)
        pixels = np.ascontiguousarray(indices.astype("<u4").view(np.uint8).reshape(size, 4)[:, :3])
        payload = path / "payload"
        payload.write_bytes(bytes(WRITER.payload_offset) + pixels.tobytes())
        keys = np.char.zfill(indices.astype("S8"), 8)
        ones = np.arange(size + 1, dtype="<u8")
        fixed = {
            "image/shape": np.tile(np.array([1, 1, 3], "<u4"), (size, 1)),
            "image/grid": np.zeros((size, 4), "<u4"),
            "label": indices.astype("<i8") % 1000,
        }
        ragged = {
            "key": Ragged(np.frombuffer(keys.tobytes(), np.uint8), 8 * ones),
            "image/tiles": Ragged(np.empty(0, "<u2"), 0 * ones),
        }
        rest = fixed["image/shape"][0].tobytes() + fixed["image/grid"][0].tobytes()
        rows = zip(keys.tolist(), pixels, fixed["label"], strict=True)
        crcs = [record_crc32c([k, p.tobytes(), rest, label.tobytes()]) for k, p, label in rows]
        identity = b"%016d" % number
        fixed["crc32c"] = apply_masks(identity, np.array(crcs, "<u4"))
        file = path / f"shard-{number:05d}.h5"
        content = ShardContent(size, identity, fixed, ragged, Payload("image", payload, 3 * ones, (1, 1, 3)))
        WRITER.write(file, (*columns, CRC32C), content)
        column_crcs = {"label": array_crc32c(fixed["label"], identity_crc(identity))}
        stored = file.stat().st_size, file_crc32c(file)
        entries.append(ShardEntry(file.name, size, *stored, column_crcs, identity.hex()))
    manifest = Manifest("hdf5", fields, (), tuple(entries), {"fastload": "test"}, (1, 1, 3))
    (path / "manifest.json").write_bytes(manifest.to_bytes())
    return path


OPEN_AND_READ = """
import random, sys
import numpy, torch, h5py, fastload.datasets.packed
def own():  # without mapped files, whose memory the kernel can reclaim
    [line] = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024
count, before = int(sys.argv[2]), own()
dataset = fastload.PackedDataset(sys.argv[1])
assert len(dataset) == count
opened = own()
for index in [0, count - 1, *random.Random(1).sample(range(count), 500)]:
    image, label = dataset[index]
    assert image.flatten().tolist() == [index & 255, index >> 8 & 255, index >> 16 & 255]
    assert label == index % 1000
print(opened - before, own() - before)
"""


class TestManyRecords:
    def check(self, tmp_path, count, shard_records, limit_bytes):
        path = _write_pixels(tmp_path / "many.fl", count, shard_records)
        done = run_python("-c", OPEN_AND_READ, path, count)
        assert done.returncode == 0, done.stderr
        opened, read = map(int, done.stdout.split())
        assert opened < 5_000_000, "opening reads only the manifest"
        assert read < limit_bytes
        return path

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
    def test_memory_does_not_grow_with_the_records(self, tmp_path):
        path = self.check(tmp_path, 200_000, 50_000, 10_000_000)
        assert PackedDataset(path).targets == [index % 1000 for index in range(200_000)]
        assert len(pickle.dumps(PackedDataset(path))) < 5000

    @pytest.mark.soak
    def test_ten_million_records_open_and_load(self, tmp_path):
        path = self.check(tmp_path, 10_000_000, 1_000_000, 30_000_000)
        loader = fastload.DataLoader(PackedDataset(path), batch_size=4096, shuffle=True, num_workers=2)
        images, labels = next(iter(loader))
        assert torch.equal((images[:, 0, 0, 0].long() + 256 * images[:, 1, 0, 0].long()) % 8, labels % 8)
