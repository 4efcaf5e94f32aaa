"""The behaviour that every layout of other programs' files must have; each layout's tests subclass it."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from fastload import PackedDataset, pack, unpack, verify
from fastload.sources import open_source


class ContainerConformance:
    """Tests of one layout, written to `made` by the fixture `source` and read by `content`.

    A subclass has a fixture `source`, the path of a small dataset, and methods `content(path)`, all of its
    content as the ecosystem's own reader gives it, and `expected(content)`: for each split the records, a
    tuple of the image (a file's bytes or pixels) and the values of the fields that are not internal.
    """

    kind: str

    def content(self, path: Path) -> object:
        raise NotImplementedError

    def expected(self, content: object) -> dict[str, list[tuple[object, dict[str, object]]]]:
        raise NotImplementedError

    def test_every_record_is_what_the_reference_reads(self, source):
        expected = self.expected(self.content(source))
        opened = open_source(source)
        assert {split: len(records) for split, records in expected.items()} == {
            split: len(each) for split, each in opened.items()
        }
        for split, each in opened.items():
            assert each.kind == self.kind
            shown = [field.name for field in each.fields if not field.internal]
            for index, (image, values) in enumerate(expected[split]):
                record = each.read(index)
                np.testing.assert_equal(record.image, image)
                np.testing.assert_equal({name: record.values[name] for name in shown}, values)
                assert record.values.keys() == {field.name for field in each.fields}
                assert record.key == each.key(index)

    def test_a_source_reads_the_same_after_pickling(self, source):
        for each in open_source(source).values():
            again = pickle.loads(pickle.dumps(each))
            last = len(each) - 1
            np.testing.assert_equal(again.read(last).values, each.read(last).values)
            assert again.fingerprint() == each.fingerprint()

    @pytest.mark.parametrize("container", ["hdf5", "lmdb"])
    def test_packing_keeps_everything_and_unpacking_writes_the_layout_again(
        self, source, tmp_path, container
    ):
        before = self.content(source)
        result = pack(source, tmp_path / "x.fl", encode="keep", format=container, workers=1)
        assert not [each for split in result.splits for each in (*split.skipped, *split.kept)]
        assert not any(verify(split.path, workers=1).damages for split in result.splits)
        root = tmp_path / "back"
        assert unpack(tmp_path / "x.fl", root).files
        back = root if source.is_dir() else root / source.name
        np.testing.assert_equal(self.content(back), before)
        sources = open_source(source)
        assert [split.path.stem if split.path.name != "x.fl" else "" for split in result.splits] == [*sources]
        for split, each in zip(result.splits, sources.values(), strict=True):
            dataset = PackedDataset(split.path)
            assert len(dataset) == len(each)
            assert dataset.classes == list(each.classes)
            for at, (pixels, target) in enumerate(dataset):
                assert pixels.shape[0] in (1, 3)
                values = each.read(at).values
                shown = {field.name for field in each.fields if not field.internal}
                assert (target.keys() if isinstance(target, dict) else {"label"}) == shown
                if "label" in shown:
                    assert (target["label"] if isinstance(target, dict) else target) == values["label"]

    def test_a_file_that_changes_after_listing_is_an_error(self, source):
        [first, *_] = open_source(source).values()
        path = Path(first.files.path(0))
        with path.open("ab") as file:
            file.write(bytes(512))
        with pytest.raises(ValueError, match=f"{path.name}.*list the source again"):
            first.read(0)
