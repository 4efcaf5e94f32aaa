import io
import pickle

import h5py
import numpy as np
import pytest
from PIL import Image

from fastload.sources import open_source
from tests.layouts.container_conformance import ContainerConformance
from tests.layouts.containers import (
    crnn,
    image,
    pickled,
    read_lmdb,
    stylegan2,
    write_biggan,
    write_lmdb,
)


class TestCrnn(ContainerConformance):
    kind = "lmdb-crnn"

    @pytest.fixture
    def source(self, tmp_path):
        return write_lmdb(tmp_path / "words", crnn())

    def content(self, path):
        return read_lmdb(path)

    def expected(self, content):
        numbers = range(1, int(content[b"num-samples"]) + 1)
        return {
            "": [
                (content[b"image-%09d" % number], {"text": content[b"label-%09d" % number].decode()})
                for number in numbers
            ]
        }


@pytest.mark.parametrize("protocol", range(6))
class TestPickled(ContainerConformance):
    kind = "lmdb-pickled"

    @pytest.fixture
    def source(self, tmp_path, protocol):
        return write_lmdb(tmp_path / "train.lmdb", pickled(protocol=protocol))

    def content(self, path):
        return {key: pickle.loads(value) for key, value in read_lmdb(path).items()}

    def expected(self, content):
        records = [content[key] for key in content[b"__keys__"]]
        return {"": [(data, {"label": label}) for data, label in records]}


class TestStylegan2(ContainerConformance):
    kind = "lmdb-stylegan2"

    @pytest.fixture
    def source(self, tmp_path):
        return write_lmdb(tmp_path / "faces", stylegan2())

    def content(self, path):
        return read_lmdb(path)

    def expected(self, content):
        return {
            "": [
                (
                    content[b"32-%05d" % number],
                    {f"image_{size}": content[b"%d-%05d" % (size, number)] for size in (16, 8)},
                )
                for number in range(int(content[b"length"]))
            ]
        }


class TestBasicsr(ContainerConformance):
    kind = "lmdb-basicsr"

    @pytest.fixture
    def source(self, tmp_path):
        names = ["baboon", "0001_s002"]
        path = write_lmdb(
            tmp_path / "hq.lmdb", {name.encode(): image(at, ".png") for at, name in enumerate(names)}
        )
        (path / "meta_info.txt").write_text("".join(f"{name}.png (16,20,3) 1\n" for name in names))
        return path

    def content(self, path):
        return read_lmdb(path), (path / "meta_info.txt").read_text()

    def expected(self, content):
        entries, meta = content
        stems = [line.partition(".")[0] for line in meta.splitlines()]
        return {"": [(entries[stem.encode()], {}) for stem in stems]}


class TestLsun(ContainerConformance):
    kind = "lmdb-lsun"

    @pytest.fixture
    def source(self, tmp_path):
        root = tmp_path / "lsun"
        for at, name in enumerate(["bridge_train", "bedroom_train", "bridge_val", "bedroom_val"]):
            keys = [b"%x" % hash((name, number)).__abs__() for number in range(3)]
            write_lmdb(root / f"{name}_lmdb", {key: image(10 * at + n) for n, key in enumerate(keys)})
        return root

    def content(self, path):
        return {each.name: read_lmdb(each) for each in path.iterdir()}

    def expected(self, content):
        found = {}
        for split in ("train", "val"):
            names = [f"bedroom_{split}_lmdb", f"bridge_{split}_lmdb"]
            found[split] = [
                (data, {"label": label})
                for label, name in enumerate(names)
                for data in content[name].values()
            ]
        return found

    # torchvision leaves the file of its keys to the garbage collector.
    @pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
    def test_torchvision_reads_the_same_images_and_labels(self, source, monkeypatch):
        datasets = pytest.importorskip("torchvision.datasets")
        monkeypatch.chdir(source.parent)  # LSUN writes a cache of its keys to the working directory
        ours = open_source(source)["train"]
        reference = datasets.LSUN(str(source), classes=["bedroom_train", "bridge_train"])
        theirs = [reference[index] for index in range(len(reference))]
        for database in reference.dbs:
            database.env.close()  # LMDB forbids opening it again while it is open
        assert len(ours) == len(theirs)
        for index, (photo, label) in enumerate(theirs):
            record = ours.read(index)
            assert record.values["label"] == label
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(record.image))), np.asarray(photo))


class TestBiggan(ContainerConformance):
    kind = "hdf5-biggan"

    @pytest.fixture
    def source(self, tmp_path):
        return write_biggan(tmp_path / "C10.hdf5")

    def content(self, path):
        with h5py.File(path) as file:
            return {name: (each.dtype.str, each[:]) for name, each in file.items()} | {
                "chunks": file["imgs"].chunks
            }

    def expected(self, content):
        labels = content["labels"][1].tolist()
        images = content["imgs"][1].transpose(0, 2, 3, 1)
        return {"": [(each, {"label": label}) for each, label in zip(images, labels, strict=True)]}
