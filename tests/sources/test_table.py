import csv
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources import open_source


@pytest.fixture
def table(tmp_path):
    """Return `table(text)`: the source of a table beside 1.jpg, 2.jpg and 3.jpg."""
    for name in "123":
        (tmp_path / f"{name}.jpg").write_bytes(name.encode())

    def opened(text, name="table.csv"):
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(data)
        [(split, source)] = open_source(tmp_path / name).items()
        assert split == ""
        assert source.kind == "table"
        return source

    return opened


def records(source):
    return [source.read(index) for index in range(len(source))]


def values(source, name="label"):
    return [record.values[name] for record in records(source)]


def test_class_names_are_sorted_and_numbered(table):
    source = table("path,label\n1.jpg,dog\n2.jpg,cat\n3.jpg,dog\n")
    assert source.classes == ("cat", "dog")
    assert source.fields == (Field.label(),)
    assert [(r.key, r.image, r.values) for r in records(source)] == [
        ("1.jpg", b"1", {"label": 1}),
        ("2.jpg", b"2", {"label": 0}),
        ("3.jpg", b"3", {"label": 1}),
    ]


def test_integer_labels_stay_as_they_are(table):
    source = table("path,label\n1.jpg,7\n2.jpg,2\n3.jpg,-1\n")
    assert values(source) == [7, 2, -1]
    assert source.classes == tuple("01234567")
    assert source.columns["label"] == "integers, of the column 'label'"


def test_identifiers_are_labels_without_classes(table):
    source = table("1.jpg,1000000\n2.jpg,9223372036854775807\n")
    assert values(source) == [1000000, 9223372036854775807]
    assert source.classes == ()


@pytest.mark.parametrize("label", ["9223372036854775809", "9" * 400, "9" * 5000])
def test_integers_beyond_int64_are_class_names(table, label):
    source = table(f"1.jpg,{label}\n2.jpg,1\n")
    assert source.classes == ("1", label)
    assert values(source) == [1, 0]


def test_other_numbers_are_not_labels(table):
    source = table("path,age\n1.jpg,0.5\n2.jpg,3\n")
    assert source.fields == (Field("age", "scalar", "float64"),)
    assert values(source, "age") == [0.5, 3.0]
    assert source.classes == ()


def test_numbers_with_underscores_are_not_numbers(table):
    assert table("1.jpg,1_0\n2.jpg,10\n").classes == ("10", "1_0")


def test_table_of_paths_alone_has_no_labels(table):
    source = table("1.jpg\n2.jpg\n")
    assert values(source) == [-1, -1]
    assert source.classes == ()


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("", "1.jpg,cat\n2.jpg,dog\n"),
        ("image,species\n", "1.jpg,cat\n2.jpg,dog\n"),
        ("image_id,breed\n", "1.jpg,cat\n2.jpg,dog\n"),
        ("label,Path\n", "cat,1.jpg\ndog,2.jpg\n"),
        ("class.v2,file_name\n", "cat,1.jpg\ndog,2.jpg\n"),
        ("\ufeff", "1.jpg,cat\n2.jpg,dog\n"),
    ],
)
def test_header_is_recognised(table, header, rows):
    source = table(header + rows)
    assert [record.key for record in records(source)] == ["1.jpg", "2.jpg"]
    assert source.classes == ("cat", "dog")


def test_first_row_without_its_file_is_a_row(table):
    source = table("gone.jpg,cat\n1.jpg,dog\n")
    assert len(source) == 2


def test_existing_file_of_a_headers_name_is_a_row(table, tmp_path):
    (tmp_path / "image").write_bytes(b"image")
    source = table("image,cat\n1.jpg,dog\n")
    assert source.read(0).image == b"image"


def test_further_columns_are_numbers_or_text(table):
    source = table(
        "filename,width,label,note,score\n1.jpg,640,cat,füñ,0.001\n2.jpg,480,dog,,nan\n",
    )
    assert source.fields == (
        Field.label(),
        Field("width", "scalar", "int64"),
        Field("note", "text"),
        Field("score", "scalar", "float64"),
    )
    assert source.read(0).values == {"label": 0, "width": 640, "note": "füñ", "score": 0.001}
    assert source.read(1).values["note"] == ""
    assert np.isnan(source.read(1).values["score"])


def test_columns_without_header_are_numbered(table):
    source = table("1.jpg,cat,5,x\n2.jpg,dog,6,y\n")
    assert [field.name for field in source.fields] == ["col2", "col3", "col4"]


def test_headers_that_are_not_identifiers_are_changed_with_a_warning(table):
    source = table(",path,label,Follow-up #,2nd,key,image,age,age\n0,1.jpg,a,1,2,3,4,5,6\n")
    names = [field.name for field in source.fields]
    assert names == ["label", "col1", "Follow_up", "_2nd", "key_", "image_", "age", "age_"]
    assert len(source.warnings) == 5
    assert "column 'Follow-up #' is stored as the field 'Follow_up'" in source.warnings[0]


def test_long_and_repeated_headers_become_different_fields(table):
    long = "x" * 70
    source = table(f"path,label,{long},{long},{long}\n1.jpg,a,1,2,3\n")
    assert [field.name for field in source.fields[1:]] == ["x" * 50, "x" * 50 + "_", "x" * 50 + "_2"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", '"path", "label"\n1.jpg, "a,b"\n'),
        ("t.tsv", "path\tlabel\n1.jpg\ta,b\n"),
        ("t.csv", "path;label\n1.jpg;a,b\n"),
        ("t.csv", 'path, label\n1.jpg, "a,b"\n'),
        ("T.CSV", "\ufeffpath\tlabel\r\n\r\n1.jpg\ta,b\r\n"),
    ],
)
def test_delimiters_quotes_line_ends_and_byte_order_marks(table, name, text):
    assert table(text, name).classes == ("a,b",)


def test_repeated_rows_stay_repeated(table):
    source = table("1.jpg,a\n1.jpg,b\n1.jpg,a\n")
    assert [record.key for record in records(source)] == ["1.jpg"] * 3
    assert values(source) == [0, 1, 0]
    assert source.size_bytes() == 3


@pytest.mark.parametrize("rows", ["1.jpg,1,2,3,4,a\n1.jpg,2,3,4,5,b\n", "1.jpg,1,2,3,4,a\n2.jpg,,,,,\n"])
def test_numbers_without_a_header_may_be_boxes(table, rows):
    with pytest.raises(SourceError, match=r"begin with a header.*image,xmin,ymin,xmax,ymax,label"):
        table(rows)
    assert [each.kind for each in table("image,xmin,ymin,xmax,ymax,label\n" + rows).fields][:1] == ["boxes"]


def test_numbers_without_a_header_are_packed_by_the_options_that_the_message_gives(table, tmp_path):
    rows = "1.jpg\tn1\t0\t3\t44\t20\n2.jpg\tn2\t5\t3\t44\t\n"  # as of Tiny ImageNet's val_annotations.txt
    with pytest.raises(SourceError, match=r"or numbers, pack with --column") as caught:
        table(rows, "val_annotations.txt")
    options = str(caught.value).split("pack with ")[1]
    kinds = dict(option.split("=") for option in options.removeprefix("--column ").split(" --column "))
    [source] = open_source(tmp_path / "val_annotations.txt", columns=kinds).values()
    assert source.classes == ("n1", "n2")
    assert [field.name for field in source.fields] == ["label", "col3", "col4", "col5", "col6"]


def test_missing_file_is_an_error_of_its_row_when_it_is_read(table):
    source = table("path,label\n1.jpg,a\n\ngone.jpg,b\n3.jpg,a\n")
    assert source.read(2).image == b"3"
    with pytest.raises(SourceError, match=r"table\.csv, row 2: .*gone\.jpg: must be a file") as caught:
        source.read(1)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.timeout(60)
def test_pipe_named_like_a_table_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(SourceError, match=r"a\.csv: must be a file, got a pipe"):
        open_source(tmp_path / "a.csv")


def test_paths_from_elsewhere_get_keys_inside(table, tmp_path):
    (tmp_path / "x").mkdir()
    source = table(f"../{tmp_path.name}/1.jpg,a\n{tmp_path}/2.jpg,a\n./x/../3.jpg,a\n")
    assert [(record.key, record.image) for record in records(source)] == [
        (f"{tmp_path.name}/1.jpg", b"1"),
        (f"{tmp_path}/2.jpg".lstrip("/"), b"2"),
        ("3.jpg", b"3"),
    ]


def test_paths_and_class_names_need_not_be_utf_8(table, tmp_path):
    name = b"caf\xe9"
    (tmp_path / os.fsdecode(name + b".jpg")).write_bytes(b"x")
    source = table(b"path,label\n" + name + b".jpg," + name + b"\n")
    assert source.read(0).image == b"x"
    assert os.fsencode(source.key(0)) == name + b".jpg"
    assert source.classes == (os.fsdecode(name),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have a row for each image, got none"),
        ("\n\n", "must have a row for each image, got none"),
        ("path,label\n", "must have a row for each image, got none"),
        ("path,label\n1.jpg,a\n2.jpg\n", "line 3: must have 2 cells as the first row has, got 1"),
        ("path,label\n1.jpg,a,b\n", "line 2: must have 2 cells as the first row has, got 3"),
        ("path,label\n1.jpg,a\n,b\n", "row 2, path: must name an image, got an empty cell"),
        (
            "path,label\n1.jpg,a\n2.jpg,\n",
            "row 2, label: must have a value, got an empty cell",
        ),
        ('path,label\n1.jpg,"a\n', "must be a row of a table, got unexpected end of data"),
        ("path,label\n1.jpg,a".encode("utf-16"), "must be UTF-8, got UTF-16"),
        (b"path,label,note\n1.jpg,a,caf\xe9\n", r"row 1, note: must be UTF-8, got b'caf\\xe9'"),
        ("path,label\n1.jpg," + "a" * 200_000, "must be a row of a table, got field larger"),
    ],
)
def test_malformed_table_is_refused_with_its_line(table, text, message):
    with pytest.raises(SourceError, match=rf"table\.csv.*{message}"):
        table(text)


cells = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"])).map(str.lstrip)


@settings(max_examples=80)
@given(st.lists(st.tuples(cells.filter(bool), cells), min_size=1))
def test_any_names_and_texts_come_back(rows):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        Path(folder, "1.jpg").touch()
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerow(["path", "label", "note"])
            writer.writerows([("1.jpg", f"c{label}", f"n{note}") for label, note in rows])
        source = open_source(path)[""]
        assert source.classes == tuple(sorted({f"c{label}" for label, _ in rows}))
        assert [source.classes[label] for label in source.values["label"]] == [f"c{a}" for a, _ in rows]
        assert list(source.values["note"]) == [f"n{b}" for _, b in rows]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_any_integers_come_back(labels):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.tsv")
        Path(folder, "1.jpg").touch()
        path.write_text("".join(f"1.jpg\t{label}\n" for label in labels))
        assert open_source(path)[""].values["label"].tolist() == labels
