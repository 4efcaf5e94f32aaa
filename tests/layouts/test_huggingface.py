import contextlib
import json
import sys

import numpy as np
import pytest

from fastload import PackedDataset, pack
from fastload.errors import LibraryMissingError, SourceError
from fastload.shards.schema import Field
from fastload.sources import open_source
from tests.folders import encoded, pixels
from tests.layouts.container_conformance import ContainerConformance

with contextlib.suppress(ModuleNotFoundError):  # without them, the tests are skipped
    import datasets
    import pyarrow

pytestmark = pytest.mark.frameworks("datasets", "pyarrow")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keep the cache of `datasets` in the test's folder, and its progress bars away."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def file(seed, suffix=".jpg"):
    return encoded(pixels(seed, 16, 20), suffix)


def detection(count=4):
    """Rows with every kind of column that is stored."""
    value, sequence = datasets.Value, datasets.Sequence
    features = datasets.Features(
        {
            "id": value("int64"),
            "image": datasets.Image(),
            "mask": datasets.Image(),
            "objects": sequence(
                {
                    "bbox": sequence(value("float32"), length=4),
                    "category": datasets.ClassLabel(names=["a", "b", "c"]),
                    "area": value("float64"),
                    "name": value("string"),
                }
            ),
            "is_odd": value("bool"),
            "captions": sequence(value("string")),
            "embedding": sequence(value("float32"), length=3),
            "lengths": sequence(value("int32")),
            "grid": datasets.Array2D((2, 3), "float32"),
            "rows": sequence(sequence(value("int16"))),
            "about": {"author": value("string"), "weight": value("float32")},
            "raw": value("binary"),
        }
    )
    rows = [
        {
            "id": 10 * at,
            "image": {"bytes": file(at), "path": f"photo {at}.jpg" if at else None},
            "mask": {"bytes": file(at, ".png"), "path": None},
            "objects": {
                "bbox": [[1.5, 2.25, 3.1, 4.0]] * at,
                "category": [each % 3 for each in range(at)],
                "area": [0.1] * at,
                "name": ["x", "ü", ""][:at],
            },
            "is_odd": at % 2 == 1,
            "captions": ["one", "zwei"][: at % 3],
            "embedding": [0.1, float(at), -1],
            "lengths": list(range(at)),
            "grid": [[at, 1, 2], [3, 4, 5]],
            "rows": [[at, 1]] * at,
            "about": {"author": f"me {at}", "weight": 0.1},
            "raw": bytes([at, 0]),
        }
        for at in range(count)
    ]
    return datasets.Dataset.from_list(rows, features=features)


def as_stored(row):
    """A row as `datasets` gives it without decoding, and our values for it."""
    array = np.asarray
    values = {
        "id": row["id"],
        "mask": row["mask"]["bytes"],
        "boxes": array(row["objects"]["bbox"], np.float32).astype(np.float64).reshape(-1, 4),
        "labels": array(row["objects"]["category"], np.int64),
        "area": array(row["objects"]["area"], np.float64),
        "name": row["objects"]["name"],
        "is_odd": row["is_odd"],
        "captions": row["captions"],
        "embedding": array(row["embedding"], np.float32),
        "lengths": array(row["lengths"], np.int32),
        "grid": array(row["grid"], np.float32),
        "rows": array(row["rows"], np.int16).reshape(-1, 2),
        "about_author": row["about"]["author"],
        "about_weight": row["about"]["weight"],
        "raw": row["raw"],
    }
    return row["image"]["bytes"], values


class Detection(ContainerConformance):
    kind = "huggingface"

    def expected(self, content):
        names = {"validation": "val"}
        return {
            names.get(split, split): [as_stored(row) for row in rows] for split, (rows, _) in content.items()
        }


def undecoded(dataset):
    plain = dataset
    for name, feature in dataset.features.items():
        if isinstance(feature, datasets.Image):
            plain = plain.cast_column(name, datasets.Image(decode=False))
    return list(plain.with_format(None)), dataset.features


class TestSavedDict(Detection):
    @pytest.fixture
    def source(self, tmp_path):
        dataset = datasets.DatasetDict({"train": detection(4), "validation": detection(3)})
        dataset.save_to_disk(tmp_path / "saved", num_shards={"train": 2, "validation": 1})
        return tmp_path / "saved"

    def content(self, path):
        return {split: undecoded(each) for split, each in datasets.load_from_disk(path).items()}


class TestSaved(Detection):
    @pytest.fixture
    def source(self, tmp_path):
        detection().save_to_disk(tmp_path / "saved")
        return tmp_path / "saved"

    def content(self, path):
        return {"": undecoded(datasets.load_from_disk(path))}


class TestCacheFile(Detection):
    @pytest.fixture
    def source(self, tmp_path):
        detection().save_to_disk(tmp_path / "saved")
        return (tmp_path / "saved" / "data-00000-of-00001.arrow").rename(tmp_path / "cache-train.arrow")

    def content(self, path):
        return {"": undecoded(datasets.Dataset.from_file(str(path)))}


class TestParquetFolder(Detection):
    @pytest.fixture
    def source(self, tmp_path):
        root = tmp_path / "hub"
        (root / "data").mkdir(parents=True)
        for name, count in [("train-00000-of-00001", 4), ("test-00000-of-00001", 2)]:
            detection(count).to_parquet(root / "data" / f"{name}.parquet", batch_size=3)
        return root

    def content(self, path):
        from pyarrow import parquet

        found = {}
        for file in sorted((path / "data").iterdir(), reverse=True):
            schema = parquet.read_schema(file)
            rows = parquet.read_table(file).to_pylist()
            found[file.name.partition("-")[0]] = rows, schema.metadata[b"huggingface"]
        return found


def test_a_classification_dataset_has_labels_and_classes(tmp_path):
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {"img": [{"bytes": file(at), "path": None} for at in range(3)], "label": [1, 0, 1]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "x.parquet")
    [source] = open_source(tmp_path / "x.parquet").values()
    assert [each for each in source.fields if not each.internal] == [Field.label()]
    assert source.classes == ("cat", "dog")
    assert [source.read(at).values["label"] for at in range(3)] == [1, 0, 1]


def test_images_that_only_a_path_names_are_read(tmp_path):
    (tmp_path / "a.jpg").write_bytes(file(7))
    dataset = datasets.Dataset.from_dict({"image": [str(tmp_path / "a.jpg")]}).cast_column(
        "image", datasets.Image()
    )
    write_arrow(tmp_path / "x.arrow", dataset.data.table)
    [source] = open_source(tmp_path / "x.arrow").values()
    assert source.read(0).image == file(7)
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(SourceError, match=r"x\.arrow, row 0, image: must .*a\.jpg"):
        source.read(0)


def write_arrow(path, table):
    with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def images(row):
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    return pyarrow.array([row] * 2, kind)


def table(**columns):
    return pyarrow.table({"image": images({"bytes": file(0), "path": None}), **columns})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            lambda: {"x": pyarrow.array([1, None])},
            "row 1, x: must hold a value that fits its column, got a missing",
        ),
        (lambda: {"x": pyarrow.array([[1.0], [None]])}, "row 1, x: must hold"),
        (lambda: {"x": pyarrow.array(["a", None])}, "row 1, x: must hold"),
        (
            lambda: {"x": pyarrow.array([[[1, 2], [3]], [[1, 2]]])},
            r"column x: must hold numbers, .*remove it first \(dataset\.remove_columns\('x'\)\)",
        ),
        (lambda: {"x": pyarrow.array([[[1, 2]], [[1, 2], [3]]])}, "row 1, x: must hold"),
        (
            lambda: {"x": pyarrow.array([0, 1], pyarrow.timestamp("s"))},
            r"column x: must hold numbers, .*timestamp",
        ),
        (
            lambda: {"objects": pyarrow.array([{"bbox": [[1, 2, 3, 4]], "category": [1, 2]}] * 2)},
            r"row 1, objects: must have all of their parts",
        ),
        (
            lambda: {"image": images({"bytes": None, "path": None})},
            r"row 1, image: must hold .* neither bytes nor a path",
        ),
    ],
    ids=["number", "in a list", "text", "lengths", "lengths in a later row", "time", "parts", "image"],
)
def test_a_value_that_cannot_be_stored_is_an_error(tmp_path, columns, message):
    write_arrow(tmp_path / "x.arrow", table(**columns()))
    with pytest.raises(SourceError, match=rf"x\.arrow.*{message}"):
        open_source(tmp_path / "x.arrow")[""].read(1)


def test_boxes_without_a_category_or_a_clear_name_stay_rows_of_numbers(tmp_path):
    bbox = pyarrow.array(
        [[[1.0, 2, 3, 4]], [[1, 2, 3, 4]] * 2], pyarrow.list_(pyarrow.list_(pyarrow.float64(), 4))
    )
    write_arrow(tmp_path / "x.arrow", table(bbox=bbox))
    [source] = open_source(tmp_path / "x.arrow").values()
    assert Field("bbox", "ragged", "float64", (4,)) in source.fields
    assert source.read(1).values["bbox"].shape == (2, 4)


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, suffix):
    from pyarrow import parquet

    path = tmp_path / f"x{suffix}"
    (write_arrow if suffix == ".arrow" else lambda path, data: parquet.write_table(data, path))(path, table())
    whole = path.read_bytes()
    for cut in (0, 3, len(whole) // 2, len(whole) - 20):
        path.write_bytes(whole[:cut])
        with pytest.raises(SourceError, match=rf"x\{suffix}.*must be complete Arrow or Parquet data"):
            open_source(path)[""].read(1)


def test_a_saved_folder_without_its_files_is_an_error(tmp_path):
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    with pytest.raises(SourceError, match=r"dataset_dict\.json: must list the folders of the splits"):
        open_source(tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "state.json").write_text("{")
    with pytest.raises(SourceError, match=r"state\.json: must be JSON"):
        open_source(tmp_path)
    (tmp_path / "train" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../x.arrow"}]}))
    with pytest.raises(SourceError, match=r"x\.arrow: must"):
        open_source(tmp_path)


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    write_arrow(tmp_path / "x.arrow", table())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(LibraryMissingError, match="pip install pyarrow"):
        open_source(tmp_path / "x.arrow")


def test_images_and_rows_named_like_annotations_stay_what_they_are(tmp_path):
    objects = [{"bbox": [[1.0, 2, 3, 4]], "category": [0], "keypoints": [[1.0, 2.0, 2.0]]}] * 2
    part = pyarrow.list_(pyarrow.list_(pyarrow.float64(), 4))
    points = pyarrow.list_(pyarrow.list_(pyarrow.float64(), 3))
    kind = pyarrow.struct(
        [("bbox", part), ("category", pyarrow.list_(pyarrow.int64())), ("keypoints", points)]
    )
    photo = images({"bytes": file(3), "path": None})
    features = {"mask": {"_type": "Image"}, "image": {"_type": "Image"}}
    data = table(objects=pyarrow.array(objects, kind), mask=photo).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    write_arrow(tmp_path / "x.arrow", data)
    pack(tmp_path / "x.arrow", tmp_path / "x.fl", encode="keep", workers=1)
    _, target = PackedDataset(tmp_path / "x.fl")[0]
    assert target["boxes"].tolist() == [[1, 2, 4, 6]]
    assert target["keypoints"].tolist() == [[1, 2, 2]]
    assert target["mask"] == file(3)


@pytest.mark.parametrize("box", [[15.0, 2, 18, 10], [0.1, 0.2, 0.3, 0.4], [1.0, 2, -3, 4]], ids=repr)
def test_corners_and_fractions_are_not_read_as_boxes_of_coco(tmp_path, box):
    sequence, value = datasets.Sequence, datasets.Value
    objects = sequence({"bbox": sequence(value("float32"), length=4), "category": value("int64")})
    features = datasets.Features({"image": datasets.Image(), "objects": objects})
    rows = {"image": [{"bytes": file(0)}], "objects": [{"bbox": [box], "category": [0]}]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "data")
    with pytest.raises(SourceError, match=r"bbox: must be x, y, width, height in pixels"):
        open_source(tmp_path / "data")[""].read(0)


def test_images_are_found_in_binary_columns_of_any_name_and_names_of_files_refused(tmp_path):
    from pyarrow import parquet

    files = {f"{at}.jpg": file(at) for at in range(3)}
    table = pyarrow.table({"image_bytes": [*files.values()], "label": [0, 1, 0]})
    parquet.write_table(table, tmp_path / "bytes.parquet")
    [source] = open_source(tmp_path / "bytes.parquet").values()
    assert source.read(1).image == files["1.jpg"]
    parquet.write_table(pyarrow.table({"file": [*files], "label": [0, 1, 0]}), tmp_path / "names.parquet")
    assert not open_source(tmp_path / "names.parquet")[""].has_images
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=r"column 'file': must hold images, or none, got '0\.jpg'"):
        open_source(tmp_path / "names.parquet")
