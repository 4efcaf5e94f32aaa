"""Shards depend only on their records, not on chunks, workers or the order of writing."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.images.encodings import encoding_named
from fastload.packing.encoding.assemble import ShardDraft, ShardRange, pack_shard
from fastload.packing.encoding.chunk import ChunkEncoder, Recipe, write_payload
from fastload.packing.encoding.options import PackOptions
from fastload.shards.schema import Field
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


def recipe_of(source, on_error, container):
    return Recipe(source, FIELDS, encoding_named("raw"), PackOptions(container, on_error=on_error))


def assemble(folder, shard, recipe, cuts, seed):
    """Pack a shard in chunks that end at the cuts, encoded and written in random order."""
    folder.mkdir()
    encoder, draft, order = (
        ChunkEncoder(recipe, folder),
        ShardDraft(shard, recipe, folder),
        random.Random(seed),
    )
    ends = [*sorted(cut for cut in cuts if shard.begin < cut < shard.end), shard.end]
    runs = list(zip([shard.begin, *ends], ends, strict=False))
    order.shuffle(runs)
    payloads, tasks = {}, []
    for start, stop in runs:
        chunk, payloads[start] = encoder.encode(start, stop)
        assert chunk.stop == stop
        tasks += draft.add(chunk)
        while tasks and order.random() < 0.5:
            task = tasks.pop(order.randrange(len(tasks)))
            write_payload(task, payloads[task.start])
            draft.written(task.start)
    for task in tasks:
        assert not draft.is_complete
        write_payload(task, payloads[task.start])
        draft.written(task.start)
    assert draft.is_complete
    return draft.finish(), draft.path


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
@settings(max_examples=25)
@given(
    count=st.integers(1, 60),
    seed=st.integers(0, 1000),
    on_error=st.sampled_from(["skip", "keep"]),
    bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    cuts=st.sets(st.integers(1, 59), max_size=10),
)
def test_shards_do_not_depend_on_the_chunks(tmp_path_factory, container, count, seed, on_error, bounds, cuts):
    source = DatasetSource(Noise(count, seed, is_broken=True), FIELDS[1:])
    recipe = recipe_of(source, on_error, container)
    begin, end = sorted(int(count * bound) for bound in bounds)
    begin = min(begin, count - 1)
    shard = ShardRange("", seed, begin, max(end, begin + 1))
    folder = tmp_path_factory.mktemp("shards")
    (folder / "alone").mkdir()
    finished, path = pack_shard(shard, recipe, folder / "alone")
    again, path_again = assemble(folder / "chunks", shard, recipe, cuts, seed)
    assert again == finished
    failed = [int(each.key) for each in (*finished.skipped, *finished.kept)]
    assert failed == sorted(source._dataset.broken & set(range(shard.begin, shard.end)))
    if finished.entry is None:
        assert len(failed) == shard.end - shard.begin
        assert not [*path.parent.iterdir(), *path_again.parent.iterdir()]
    else:
        assert path.read_bytes() == path_again.read_bytes()
        assert finished.entry.file == path.name
        assert [path] == list(path.parent.iterdir())


def test_images_of_one_shape_are_noted(tmp_path):
    dataset = Noise(20, 1, is_broken=False)
    dataset.sides = [[5, 6]] * 10 + [[7, 6]] * 10
    recipe = recipe_of(DatasetSource(dataset, FIELDS[1:]), "fail", "hdf5")
    shapes = []
    for number, (begin, end) in enumerate([(0, 10), (10, 20), (5, 15)]):
        shapes.append(pack_shard(ShardRange("", number, begin, end), recipe, tmp_path)[0].image_shape)
    assert shapes == [(5, 6, 3), (7, 6, 3), None]
