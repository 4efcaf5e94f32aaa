"""The assembler: shards depend only on the records, not on chunks, workers or the order of writing."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.images.encodings import encoding_named
from fastload.packing._assemble import Assembler
from fastload.packing._chunk import ChunkEncoder, Recipe, write_payload
from fastload.shards.schema import Field
from fastload.shards.shard import writer_for
from fastload.sources import DatasetSource


class Noise:
    """Images of many sizes, boxes, and occasionally a record that is not an image."""

    classes = ("a", "b")

    def __init__(self, count, seed, is_broken):
        rng = np.random.default_rng(seed)
        self.sides = rng.integers(1, 40, (count, 2)).tolist()
        self.broken = set(np.flatnonzero(rng.random(count) < 0.2).tolist()) if is_broken else set()

    def __len__(self):
        return len(self.sides)

    def __getitem__(self, index):
        height, width = self.sides[index]
        rng = np.random.default_rng(index)
        image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        boxes = np.full((index % 4, 4), index, np.float32)
        return b"broken" if index in self.broken else image, {"label": index % 2, "boxes": boxes}


FIELDS = (Field("image", "image", encoding="raw"), Field.label(), Field("boxes", "ragged", "float32", (4,)))


def assemble(folder, source, on_error, container, shard_bytes, cuts, seed=0):
    """Pack in chunks that end at the cuts, written in random order; return files and shards."""
    drafts = folder / "drafts"
    drafts.mkdir(parents=True)
    recipe = Recipe(source, FIELDS, encoding_named("raw"), None, on_error)
    encoder = ChunkEncoder(recipe, drafts)
    assembler = Assembler(folder, drafts, FIELDS, writer_for(container), shard_bytes, 0, b"noise")
    order = random.Random(seed)
    pending, finished = [], []
    ends = [*sorted(cut for cut in cuts if 0 < cut < len(source)), len(source)]
    for start, stop in zip([0, *ends], ends, strict=False):
        chunk, payload = encoder.encode(start, stop)
        assert chunk.stop == stop
        pending.append((start, assembler.place(chunk), payload))
        while pending and order.random() < 0.5:
            finished += write(assembler, *pending.pop(order.randrange(len(pending))))
    while pending:
        finished += write(assembler, *pending.pop())
    finished += assembler.end(len(source))
    left = assembler.take_failures(len(source))
    assert {path.suffix for path in drafts.iterdir()} <= {".payload"}
    return {path.name: path.read_bytes() for path in folder.glob("shard-*")}, finished, left


def write(assembler, number, ranges, payload):
    for each in ranges:
        write_payload(each, payload[each.first : each.last])
    return assembler.written(number)


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
@settings(max_examples=25)
@given(
    count=st.integers(1, 60),
    seed=st.integers(0, 1000),
    on_error=st.sampled_from(["skip", "keep"]),
    shard_bytes=st.sampled_from([4096, 10_000, 30_000, 10**9]),
    cuts=st.sets(st.integers(1, 59), max_size=10),
)
def test_shards_do_not_depend_on_the_chunks(
    tmp_path_factory, container, count, seed, on_error, shard_bytes, cuts
):
    source = DatasetSource(Noise(count, seed, is_broken=True), FIELDS[1:])
    folder = tmp_path_factory.mktemp("shards")
    files, finished, left = assemble(folder / "a", source, on_error, container, shard_bytes, cuts, seed)
    assert (files, finished, left) == assemble(folder / "b", source, on_error, container, shard_bytes, ())
    assert [shard.entry.file for shard in finished] == sorted(files)
    failed = [failure.index for shard in finished for failure in shard.failures]
    failed += [failure.index for failure in left]
    assert failed == sorted(source._dataset.broken)


def test_a_shard_ends_before_it_would_grow_beyond_its_size(tmp_path):
    source = DatasetSource(Noise(200, 1, is_broken=False), FIELDS[1:])
    _, finished, _ = assemble(tmp_path / "shards", source, "fail", "hdf5", 20_000, range(0, 200, 7))
    weights = [
        len(source.key(i)) + 3 * h * w + 16 * (i % 4) for i, (h, w) in enumerate(source._dataset.sides)
    ]
    first = 0
    for shard in finished:
        assert shard.entry.records == shard.next_index - first
        assert sum(weights[first : shard.next_index]) <= 20_000
        if shard.next_index < 200:
            assert sum(weights[first : shard.next_index + 1]) > 20_000
        first = shard.next_index
    assert first == 200


def test_a_record_larger_than_a_shard_gets_its_own_shard(tmp_path):
    source = DatasetSource(Noise(50, 1, is_broken=False), FIELDS[1:])
    _, finished, _ = assemble(tmp_path / "shards", source, "fail", "hdf5", 1, range(0, 50, 7))
    assert [shard.entry.records for shard in finished] == [1] * 50


def test_images_of_one_shape_are_noted(tmp_path):
    dataset = Noise(20, 1, is_broken=False)
    dataset.sides = [[5, 6]] * 10 + [[7, 6]] * 10
    _, finished, _ = assemble(
        tmp_path / "shards", DatasetSource(dataset, FIELDS[1:]), "fail", "hdf5", 1160, range(0, 20, 3)
    )
    assert {shard.image_shape for shard in finished} >= {(5, 6, 3), (7, 6, 3)}
