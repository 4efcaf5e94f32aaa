import bz2
import contextlib
import gzip
import io
import json
import lzma
import shutil
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from fastload import DataLoader, PackedDataset, pack, unpack
from fastload.errors import FormatError, SourceError
from fastload.shards.manifest import read_manifest
from fastload.sources import open_source
from tests.layouts.container_conformance import ContainerConformance
from tests.layouts.containers import image, npy, write_tar


def samples(begin, count, *, cls=True):
    members = {}
    for number in range(begin, begin + count):
        key = f"some/folder {number}.with.dots" if number % 2 else f"{number:06d}"
        key = key.partition(".")[0]
        members |= {
            f"{key}.jpg": image(number),
            f"{key}.seg.png": image(number, ".png"),
            f"{key}.json": json.dumps({"number": number}).encode(),
            f"{key}.txt": f"lïne {number}\n".encode(),
            f"{key}.index": b"%d" % number,
            f"{key}.boxes.npy": npy(np.arange(4.0 * (number % 3)).reshape(-1, 4)),
            f"{key}.emb.npy": npy(np.full((2, 3), number, np.float16)),
            f"{key}.pyd": bytes([0x80, number]),
        }
        if cls:
            members[f"{key}.cls"] = b"%d" % (number % 5)
    return members


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.frameworks("webdataset")
class TestWebDataset(ContainerConformance):
    kind = "webdataset"

    @pytest.fixture
    def source(self, tmp_path):
        root = tmp_path / "shards"
        write_tar(root / "set-train-000.tar", samples(0, 3))
        write_tar(root / "set-train-001.tar", samples(3, 2))
        write_tar(root / "set-val-000.tar", samples(5, 2))
        (root / "README.md").write_text("about")
        return root

    def content(self, path):
        import webdataset

        found = {}
        for shard in sorted(path.glob("*.tar")):
            reader = webdataset.WebDataset(str(shard), shardshuffle=False, empty_check=False)
            found[shard.name] = [
                {name: value for name, value in sample.items() if name != "__url__"} for sample in reader
            ]
            for sample in found[shard.name]:
                sample.pop("__local_path__", None)
        return found

    def expected(self, content):
        found = {"train": [], "val": []}
        for name, shard in content.items():
            for sample in shard:
                values = {
                    "label": int(sample["cls"]),
                    "seg_png": sample["seg.png"],
                    "json": sample["json"].decode(),
                    "txt": sample["txt"].decode(),
                    "index": int(sample["index"]),
                    "boxes_npy": np.load(io.BytesIO(sample["boxes.npy"])),
                    "emb_npy": np.load(io.BytesIO(sample["emb.npy"])),
                    "pyd": sample["pyd"],
                }
                found["val" if "-val-" in name else "train"].append((sample["jpg"], values))
        return found


def one(path):
    [source] = open_source(path).values()
    return source


def test_a_pattern_names_the_shards(tmp_path):
    for number in range(3):
        write_tar(tmp_path / f"s-{number:03d}.tar", {f"{number}.png": image(number, ".png")})
    assert len(one(tmp_path / "s-{000..002}.tar")) == 3
    assert len(one(tmp_path / "{s,s}-{000..001}.tar")) == 4
    with pytest.raises(SourceError, match=r"s-003\.tar: must exist"):
        one(tmp_path / "s-{000..003}.tar")
    with pytest.raises(SourceError, match="must name 1 to"):
        one(tmp_path / "s-{003..001}.tar")


def test_images_of_one_role_may_have_different_extensions(tmp_path):
    source = one(write_tar(tmp_path / "x.tar", {"a.jpg": image(0), "b.PNG": image(1, ".png")}))
    assert [source.key(0), source.key(1)] == ["a.jpg", "b.PNG"]
    assert source.read(1).image == image(1, ".png")
    assert source.read(1).values["label"] == -1
    assert "labels are -1 for each" in source.warnings[0]


def test_a_tar_of_class_folders_has_their_classes(tmp_path):
    names = ["photos/dog/1.jpg", "photos/cat/1.jpg", "photos/dog/2.v2.jpg"]
    source = one(write_tar(tmp_path / "x.tar", {name: image(at) for at, name in enumerate(names)}))
    assert source.classes == ("cat", "dog")
    assert [source.read(at).values["label"] for at in range(3)] == [1, 0, 1]
    assert "the names of their folders" in source.warnings[0]
    assert [source.key(at) for at in range(3)] == names


def test_class_names_with_a_line_feed_become_labels(tmp_path):
    members = {}
    for key, name in [("a", "dog"), ("b", "cat"), ("c", "dog")]:
        members |= {f"{key}.jpg": image(0), f"{key}.cls": f"{name}\n".encode()}
    source = one(write_tar(tmp_path / "x.tar", members))
    assert source.classes == ("cat", "dog")
    assert [source.read(index).values["label"] for index in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("texts", [("3\n", "10"), ("3\r\n", "10\r\n"), (" 3", "10 ")], ids=repr)
def test_labels_are_integers_whatever_spaces_are_around_them(tmp_path, texts):
    members = {}
    for at, text in enumerate(texts):
        members |= {f"{at}.jpg": image(at), f"{at}.cls": text.encode()}
    source = one(write_tar(tmp_path / "x.tar", members))
    assert [source.read(at).values["label"] for at in range(2)] == [3, 10]


def test_samples_of_images_and_labels_are_those_of_class_folders(tmp_path):
    write_tar(tmp_path / "x.tar", {"a.jpg": image(0), "a.cls": b"3", "b.jpg": image(1), "b.cls": b"0"})
    pack(tmp_path / "x.tar", tmp_path / "x.fl", encode="raw", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    assert [label for _, label in dataset] == dataset.targets == [3, 0]
    assert dataset.classes == ["0", "1", "2", "3"]
    [(images, labels)] = DataLoader(dataset, batch_size=2, num_workers=0)
    assert (images.shape, labels.tolist()) == ((2, 3, 16, 20), [3, 0])


def test_pixels_of_another_encoding_are_written_as_files_that_name_it(tmp_path):
    write_tar(tmp_path / "x.tar", {"a.jpg": image(0), "a.cls": b"3"})
    pack(tmp_path / "x.tar", tmp_path / "x.fl", encode="raw", workers=1)
    unpack(tmp_path / "x.fl", tmp_path / "out")
    with tarfile.open(tmp_path / "out" / "x.tar") as tar:
        assert tar.getnames() == ["a.jpg.png", "a.cls"]


def test_names_of_a_changed_dataset_lead_nowhere_else(tmp_path):
    write_tar(tmp_path / "x.tar", {"a.jpg": image(0), "a.cls": b"3"})
    pack(tmp_path / "x.tar", tmp_path / "x.fl", encode="keep", workers=1)
    manifest = read_manifest(tmp_path / "x.fl")
    for files, names in [(["../../evil.tar"], {"out/evil.tar"}), ([], set()), ("x", set())]:
        made = {**manifest.made, "details": {**manifest.made["details"], "files": files}}
        (tmp_path / "x.fl" / "manifest.json").write_bytes(replace(manifest, made=made).to_bytes())
        with contextlib.suppress(FormatError):
            unpack(tmp_path / "x.fl", tmp_path / "out")
        assert {each.relative_to(tmp_path).as_posix() for each in tmp_path.glob("out/*")} == names
        assert not list(tmp_path.parent.glob("evil.tar"))
        shutil.rmtree(tmp_path / "out")


def test_a_split_without_labels_has_none(tmp_path):
    write_tar(tmp_path / "train" / "0.tar", {"a.jpg": image(0), "a.cls": b"1"})
    write_tar(tmp_path / "test" / "0.tar", {"a.jpg": image(0)})
    found = open_source(tmp_path)
    assert {split: each.read(0).values["label"] for split, each in found.items()} == {"train": 1, "test": -1}


@pytest.mark.parametrize("name", ["images.tar", "metadata.parquet", "x.arrow"])
def test_an_archive_beside_class_folders_is_no_dataset(tmp_path, name):
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "1.jpg").write_bytes(image(0))
    (tmp_path / name).write_bytes(b"x")
    if name.startswith("metadata"):
        with pytest.raises(SourceError, match=r"metadata\.parquet.*would be lost"):
            open_source(tmp_path)
        return
    source = one(tmp_path)
    assert (source.kind, source.classes) == ("folder", ("cat", "dog"))
    assert [entry.key for entry in source.left_out] == [name]


def test_members_that_lead_elsewhere_or_are_no_files_are_harmless(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo("0.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        for name in ("../../evil.jpg", "/abs.jpg", "__meta__", ".hidden"):
            entry = tarfile.TarInfo(name)
            entry.size = len(image(0))
            tar.addfile(entry, io.BytesIO(image(0)))
    source = one(path)
    assert [source.key(index) for index in range(len(source))] == ["evil.jpg", "abs.jpg"]
    assert sorted(entry.key for entry in source.left_out) == [
        "x.tar/.hidden",
        "x.tar/0.jpg",
        "x.tar/__meta__",
    ]
    assert not (tmp_path.parent / "evil.jpg").exists()


COMPRESSED = {".tar.gz": gzip, ".tgz": gzip, ".tar.bz2": bz2, ".tar.xz": lzma}


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_compressed_shards_are_read_and_written_again(tmp_path, suffix):
    plain = write_tar(tmp_path / "x.tar", samples(0, 4)).read_bytes()
    path = tmp_path / f"set{suffix}"
    path.write_bytes(COMPRESSED[suffix].compress(plain))
    source, expected = one(path), one(tmp_path / "x.tar")
    for index in (3, 0, 2):  # also backwards
        np.testing.assert_equal(source.read(index).values, expected.read(index).values)
    pack(path, tmp_path / "x.fl", encode="keep", workers=2)
    unpack(tmp_path / "x.fl", tmp_path / "out")
    with tarfile.open(tmp_path / "out" / path.name) as mine, tarfile.open(tmp_path / "x.tar") as theirs:
        assert {each.name: mine.extractfile(each).read() for each in mine} == {
            each.name: theirs.extractfile(each).read() for each in theirs
        }
    for cut in (20, len(path.read_bytes()) - 20):
        (tmp_path / f"cut{suffix}").write_bytes(path.read_bytes()[:cut])
        with pytest.raises(
            SourceError, match=r"cut.*: must (be a tar file that can be read|hold a tar header)"
        ):
            one(tmp_path / f"cut{suffix}")


def test_a_shard_of_zstd_names_the_step_where_python_lacks_it(tmp_path):
    (tmp_path / "x.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    with pytest.raises(SourceError, match=r"x\.tar\.zst: must be"):
        one(tmp_path / "x.tar.zst")


def test_sparse_members_are_refused(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        entry = tarfile.TarInfo("a.jpg")
        entry.type = tarfile.GNUTYPE_SPARSE
        tar.addfile(entry)
    with pytest.raises(SourceError, match=r"offset 0: must hold members without holes"):
        one(path)


def test_a_damaged_shard_is_named_with_the_offset(tmp_path):
    whole = write_tar(tmp_path / "whole.tar", samples(0, 3)).read_bytes()
    end = len(whole.rstrip(b"\0")) + 512
    for cut in (0, 100, 512, 700, 5000, end // 2 // 512 * 512, end - 600):
        (tmp_path / "x.tar").write_bytes(whole[:cut])
        with pytest.raises(SourceError, match=r"x\.tar(, offset [0-9]+)?: must"):
            one(tmp_path / "x.tar")
    for flipped in (0, 124, 148, 257):
        data = bytearray(whole)
        data[flipped] ^= 0x40
        (tmp_path / "x.tar").write_bytes(data)
        with pytest.raises(SourceError, match=r"x\.tar, offset 0: must hold a tar header"):
            one(tmp_path / "x.tar")
    (tmp_path / "x.tar").write_bytes(whole + whole)
    with pytest.raises(SourceError, match="nothing after the end"):
        one(tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.cls": b"1"}, "must hold samples with an image"),
        ({"a.jpg": image(0), "a.cls": b"0", "b.jpg": image(1)}, r"sample 'b': must have a member \.cls"),
        ({"a.jpg": image(0), "a.txt": b"x", "b.txt": b"x"}, r"sample 'b': must have a member \.jpg"),
    ],
    ids=["no image", "no label", "an image missing"],
)
def test_an_incomplete_sample_is_an_error(tmp_path, members, message):
    path = write_tar(tmp_path / "x.tar", members)
    with pytest.raises(SourceError, match=message):
        one(path).read(1)


def test_a_second_member_of_one_name_is_an_error(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for _ in range(2):
            entry = tarfile.TarInfo("a.jpg")
            entry.size = 3
            tar.addfile(entry, io.BytesIO(b"abc"))
    with pytest.raises(SourceError, match=r"offset 1536: sample 'a': must have one member \.jpg"):
        one(tmp_path / "x.tar")


@pytest.mark.parametrize(("place", "name"), [("Annotations", "{}.xml"), ("labels", "{}.txt")])
def test_a_tar_of_images_and_annotations_in_folders_of_their_own_is_refused(tmp_path, place, name):
    members = {f"VOC/images/{at}.jpg": image(at) for at in range(2)}
    members |= {f"VOC/{place}/{name.format(at)}": b"0 0.5 0.5 0.1 0.1" for at in range(2)}
    write_tar(tmp_path / "voc.tar", members)
    with pytest.raises(SourceError, match=r"those of '0' in two folders: unpack .*, and pack the folder"):
        open_source(tmp_path / "voc.tar")


def test_a_tar_of_images_and_a_file_of_labels_is_refused_unless_it_is_named(tmp_path):
    members = {"x/images/0.jpg": image(0), "x/instances.json": b"{}", "x/README.md": b""}
    path = write_tar(tmp_path / "x.tar", members)
    with pytest.raises(SourceError, match=r"labels beside its images, got '.*instances.json': unpack"):
        open_source(path)
    assert len(open_source(path, layout="webdataset")[""]) == 1
