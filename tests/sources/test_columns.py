"""Types of table columns: numbers only if every cell can be written back unchanged."""

import math
import shlex
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastload.errors import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources import open_source
from fastload.sources.table.numbers import numbers_in
from tests.folders import encoded, pixels


@pytest.fixture
def listed(tmp_path):
    """Return `listed(header, *rows, **kinds)`: the source of a table of these lines, beside images."""
    for name in ("1.png", "2.png", "3.png", "m1.png", "m2.png", "m3.png", "bare"):
        (tmp_path / name).write_bytes(encoded(pixels(len(name)), ".png"))
    for name in ("m1.npy", "m2.npy"):
        np.save(tmp_path / name, pixels(2))

    def listed(*lines, kinds=None, name="t.csv"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return open_source(tmp_path / name, columns=kinds)[""]

    return listed


def column(listed, *cells, **options):
    """The source of a table whose third column, `x`, holds the cells."""
    return listed("path,label,x", *(f"{row}.png,a,{cell}" for row, cell in enumerate(cells, 1)), **options)


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["7", "-1", "0"], "int64"),
        (["9007199254740993", "-9223372036854775808", "9223372036854775807"], "int64"),
        (["0.5", "3.0", "1e-05"], "float64"),
        (["0.5", "3", "-2"], "float64"),
        (["nan", "0.25", "inf"], "float64"),
        (["-0.0", "1.0", "-inf"], "float64"),
        (["1.0", "", "3.0"], "float64"),
        (["nan", "5", "6"], "float64"),
    ],
)
def test_cells_that_can_be_written_back_unchanged_are_numbers(listed, cells, dtype):
    source = column(listed, *cells)
    assert source.fields[1] == Field("x", "scalar", dtype)
    numbers = np.array([float(cell or "nan") if dtype == "float64" else int(cell) for cell in cells])
    np.testing.assert_array_equal(source.values["x"], numbers)
    assert source.columns["x"].startswith(f"{dtype}, of the column 'x'")


@pytest.mark.parametrize(
    "cells",
    [
        ["00001", "00002"],
        ["1234", "01234"],
        ["1e5", "100000"],
        ["1", "+5"],
        ["-0", "5"],
        ["1.0", "1"],
        ["0.5", "0.50"],
        ["1", "9223372036854775808"],
        ["1", "2", "n/a"],
        ["1", "1_000"],
        ["1", "0x1"],
        ["1", '" 7"'],
        ["1", " 7"],
        ["00001", ""],
        ["9" * 400, "1"],
        ["9" * 5000, "1"],
        ["a", "b", "1"],
        ["", ""],
    ],
)
def test_cells_that_numbers_would_change_are_text(listed, cells):
    source = column(listed, *cells)
    assert source.fields[1] == Field("x", "text")
    assert list(source.values["x"]) == [cell.strip('"') for cell in cells]
    assert source.columns["x"] == "text, of the column 'x'"


NUMBER_LIKE = st.from_regex(r"\A[+-]?[0-9]{1,3}(\.[0-9]{1,2})?(e[0-9])?\Z") | st.sampled_from(
    ["nan", "inf", ""]
)
CELLS = (
    st.integers(-(2**65), 2**65).map(str) | st.floats().map(repr) | NUMBER_LIKE | st.text("0123456789+-._ e")
)


@given(st.lists(CELLS, min_size=1, max_size=4))
@example(["1.10", "1.1"])
@example(["16777217", "0.1"])
def test_no_two_cells_become_one_number_and_every_cell_comes_back(cells):
    numbers = numbers_in(cells)
    if numbers is None:
        return
    ways = [
        lambda number: "" if math.isnan(number) else str(number),
        lambda number: "" if math.isnan(number) else str(number).removesuffix(".0"),
    ]
    given_back = ["" if cell == "nan" else cell for cell in cells]
    assert any([way(number) for number in numbers.tolist()] == given_back for way in ways)


def test_an_empty_cell_among_floats_is_nan_and_noted(listed):
    source = column(listed, "0.5", "", "")
    assert source.columns["x"] == "float64, of the column 'x', 2 empty cells are NaN (the first in row 2)"


def test_an_empty_cell_among_integers_is_refused_with_the_options(listed):
    with pytest.raises(
        SourceError, match=r"t\.csv, row 2, x: must be an integer, as in other rows, got an em"
    ) as caught:
        column(listed, "5", "", "7")
    assert "fill it in, or pack with --column x=float (empty is NaN) or --column x=text" in str(caught.value)
    assert column(listed, "5", "", "7", kinds={"x": "float"}).values["x"].tolist()[::2] == [5.0, 7.0]
    assert list(column(listed, "5", "", "7", kinds={"x": "text"}).values["x"]) == ["5", "", "7"]


class TestLabels:
    @pytest.mark.parametrize("header", ["path,label", "path,species", "1.png,x"])
    @pytest.mark.parametrize(
        "names",
        [["1e5", "100000"], ["00001", "1"], ["01234", "1234"], ["+5", "5"], ["0x1", "1"], ["True", "1"]],
    )
    def test_names_stay_as_many_classes_as_they_are(self, listed, header, names):
        first = [] if header.startswith("path") else ["x"]
        source = listed(header, *(f"{row}.png,{name}" for row, name in enumerate(names, 1)))
        assert source.classes == tuple(sorted(names + first))
        back = [source.classes[label] for label in source.values["label"]]
        assert back == first + names
        assert source.columns["label"].startswith(f"names of {len(back)} classes, of the column")

    @pytest.mark.parametrize("cells", [["0.7", "1.7"], ["0.7", "1"], ["nan", "0.5"]])
    def test_floats_are_a_field_and_not_classes(self, listed, cells):
        source = listed("path,label", *(f"{row}.png,{cell}" for row, cell in enumerate(cells, 1)))
        assert source.fields == (Field("label", "scalar", "float64"),)
        np.testing.assert_array_equal(source.values["label"], [float(cell) for cell in cells])

    @pytest.mark.parametrize("header", ["path,label", "path,score", "1.png,0.10"])
    @pytest.mark.parametrize("cells", [["0.50", "1.5"], ["1.0", "1"], ["0.5", "n/a"], ['"0,5"', '"1,5"']])
    def test_numbers_that_would_change_are_neither_floats_nor_classes(self, listed, header, cells):
        rows = [f"{row}.png,{cell}" for row, cell in enumerate(cells, 1)]
        with pytest.raises(SourceError, match=r"row \d, label: must hold numbers .*--column label=float"):
            listed(header, *rows)
        names = {cell.strip('"') for cell in cells} | ({"0.10"} if header[0] == "1" else set())
        assert set(listed(header, *rows, kinds={"label": "text"}).classes) == names

    def test_given_kinds_are_used(self, listed):
        rows = ["1.png,07", "2.png,9", "3.png,08"]
        source = listed("path,species", *rows, kinds={"label": "int"})
        assert source.values["label"].tolist() == [7, 9, 8]
        source = listed("path,species", *rows, kinds={"label": "float"})
        assert source.fields == (Field("species", "scalar", "float64"),)
        source = listed("path,label", "1.png,1", "2.png,2", kinds={"label": "text"})
        assert (source.classes, source.values["label"].tolist()) == (("1", "2"), [0, 1])
        source = listed("path,label", "1.png,0.50", "2.png,", kinds={"label": "float"})
        np.testing.assert_array_equal(source.values["label"], [0.5, np.nan])

    def test_a_column_of_a_given_kind_is_a_label_only_with_that_header(self, listed):
        rows = ["1.png,0001,cat", "2.png,0002,dog"]
        source = listed("path,patient,species", *rows)
        assert source.fields == (Field("patient", "text"), Field("species", "text"))
        assert "--column NAME=label" in source.warnings[0]
        source = listed("path,patient,species", *rows, kinds={"patient": "text"})
        assert source.fields == (Field.label(), Field("patient", "text"))
        assert source.classes == ("cat", "dog")
        source = listed("path,patient", "1.png,0001", kinds={"patient": "text"})
        assert source.fields == (Field("patient", "text"),)

    @pytest.mark.parametrize("cells", [("0.5", ""), ("1", ""), ("a", "")])
    def test_every_row_has_a_label(self, listed, cells):
        with pytest.raises(
            SourceError,
            match=r"row 2, label: must have a value, got an empty cell: fill it in",
        ):
            listed("path,label", f"1.png,{cells[0]}", f"2.png,{cells[1]}")


class TestKinds:
    @pytest.mark.parametrize(
        ("kind", "cells", "message"),
        [
            ("int", ["1", "1.5"], r"row 2, x: must be an integer that int64 holds, got '1\.5'"),
            ("int", ["1", ""], "row 2, x: must be an integer that int64 holds, got ''"),
            ("int", ["1", "9223372036854775808"], "row 2, x: must be an integer"),
            ("int", ["1", "1_0"], "row 2, x: must be an integer"),
            ("int", ["1", "9" * 5000], "row 2, x: must be an integer"),
            ("float", ["a"], r"row 1, x: must be a number that float64 holds, or empty for NaN, got 'a'"),
            ("float", ["1e999"], "row 1, x: must be a number"),
            ("float", ["1_0.5"], "row 1, x: must be a number"),
            ("float", ["9007199254740993"], "row 1, x: must be a number"),
        ],
    )
    def test_a_value_that_does_not_fit_names_row_and_column(self, listed, kind, cells, message):
        with pytest.raises(SourceError, match=message) as caught:
            column(listed, *cells, kinds={"x": kind})
        assert "--column x=text" in str(caught.value)

    def test_given_kinds_take_values_however_they_are_written(self, listed):
        assert column(listed, "007", "+5", kinds={"x": "int"}).values["x"].tolist() == [7, 5]
        assert column(listed, "0.50", "1e5", kinds={"x": "float"}).values["x"].tolist() == [0.5, 1e5]
        assert list(column(listed, "5", "6", kinds={"x": "text"}).values["x"]) == ["5", "6"]

    def test_invalid_columns_are_refused(self, listed, tmp_path):
        with pytest.raises(
            OptionError, match=r"must have a column 'zip' to be text, got path, label, x: check"
        ):
            column(listed, "a", kinds={"zip": "text"})
        with pytest.raises(OptionError, match="must be one of text, int, float, path, label, got x=number"):
            column(listed, "a", kinds={"x": "number"})
        with pytest.raises(OptionError, match="must have one column of labels, got 'x' and 'label'"):
            column(listed, "a", kinds={"x": "label", "label": "label"})
        with pytest.raises(OptionError, match="must have one column left for the labels"):
            listed("path", "1.png", kinds={"label": "text"})
        with pytest.raises(OptionError, match=r"columns are for a \.csv or \.tsv table"):
            open_source(tmp_path, columns={"x": "text"})
        with pytest.raises(OptionError, match=r"columns must map names to kinds"):
            column(listed, "a", kinds=["x"])

    def test_columns_without_a_header_have_numbers(self, listed):
        source = listed("1.png,a,5,007", "2.png,b,6,008", kinds={"col3": "text", "col4": "int"})
        assert source.fields[1:] == (Field("col3", "text"), Field("col4", "scalar", "int64"))

    def test_a_kind_is_used_for_all_columns_of_that_header(self, listed):
        source = listed("path,label,age,age", "1.png,a,5,6", kinds={"age": "text"})
        assert [field.kind for field in source.fields[1:]] == ["text", "text"]


class TestImages:
    @pytest.mark.parametrize(
        "lines",
        [
            ["path,mask", "1.png,gone1.png", "2.png,gone2.png"],
            ["path,label,mask", "1.png,a,gone", "2.png,b,bare"],
            ["path,label,mask", "1.png,a,m1.npy", "2.png,b,m2.npy"],
            ["path,mask", "1.png,m1.npy", "2.png,m2.npy"],
        ],
    )
    def test_a_column_of_images_is_neither_text_nor_classes(self, listed, lines):
        with pytest.raises(
            SourceError, match=r"t\.csv, row \d, \w+: must hold .*, which names a file"
        ) as caught:
            listed(*lines)
        shown = [option.split(" (")[0] for option in str(caught.value).split("--column ")[1:]]
        name, kind = shlex.split(shown[0])[0].split("=")
        assert kind == "path"
        assert shown[1].startswith(f"{name}=text")

    @pytest.mark.parametrize(
        ("lines", "names"),
        [
            (["path,label,mask", "1.png,a,m1.png", "2.png,b,m2.png"], ["label", "mask"]),
            (["image,mask,depth", "1.png,m1.png,m2.png", "2.png,m2.png,m1.png"], ["mask", "depth"]),
            (["1.png,a,m1.png", "2.png,b,m2.png"], ["label", "col3"]),
        ],
        ids=["labelled", "images alone", "without a header"],
    )
    def test_columns_of_existing_images_are_image_fields(self, listed, tmp_path, lines, names):
        source = listed(*lines)
        assert [field.name for field in source.fields if not field.internal] == names
        record = source.read(1)
        for name, cell in zip(["", *names], lines[-1].split(","), strict=True):
            if name and name != "label":
                assert record.values[name] == (tmp_path / cell).read_bytes()
                assert source.columns[name].startswith("images, stored as the files are")

    def test_a_column_of_kind_path_is_an_image_field(self, listed, tmp_path):
        lines = ["path,label,mask", "1.png,a,m1.png", "2.png,b,m2.png"]
        source = listed(*lines, kinds={"mask": "path"})
        assert source.fields[:-1] == (Field.label(), Field("mask", "image", encoding="keep"))
        assert source.read(1).values == {
            "label": 1,
            "mask": (tmp_path / "m2.png").read_bytes(),
            "mask_path": "m2.png",
        }
        assert source.size_bytes() == sum(
            (tmp_path / f"{name}.png").stat().st_size for name in ("1", "2", "m1", "m2")
        )
        part = source.part([1])
        assert part.read(0).values["mask"] == (tmp_path / "m2.png").read_bytes()
        before = source.fingerprint()
        (tmp_path / "m2.png").write_bytes(b"other")
        assert listed(*lines, kinds={"mask": "path"}).fingerprint() != before

    def test_a_column_of_kind_text_is_text(self, listed):
        source = listed("path,label,mask", "1.png,a,m1.png", kinds={"mask": "text"})
        assert source.read(0).values["mask"] == "m1.png"

    def test_images_alone_need_no_label(self, listed):
        source = listed("left,right", "1.png,m1.png", kinds={"right": "path"})
        assert source.key(0) == "1.png"
        assert source.fields[0] == Field("right", "image", encoding="keep")

    def test_the_images_may_be_in_any_column_of_kind_path(self, listed):
        source = listed("id,photo,species", "17,1.png,cat", "18,2.png,dog", kinds={"photo": "path"})
        assert [source.key(0), source.key(1)] == ["1.png", "2.png"]
        assert source.columns["image"] == "paths of the images, of the column 'photo'"
        assert source.values["id"].tolist() == [17, 18]

    def test_a_missing_further_image_names_its_row(self, listed):
        source = listed("path,mask", "1.png,m1.png", "2.png,gone.png", kinds={"mask": "path"})
        with pytest.raises(SourceError, match=r"t\.csv, row 2: .*gone\.png: must be a file"):
            source.read(1)

    def test_names_of_missing_images_are_text_only_on_request(self, listed):
        rows = "path,label,original", "1.png,a,IMG_1.JPG", "2.png,b,IMG_2.JPG"
        with pytest.raises(SourceError, match=r"row 1, original: .* names a file.*--column original=text"):
            listed(*rows)
        source = listed(*rows, kinds={"original": "text"})
        assert list(source.values["original"]) == ["IMG_1.JPG", "IMG_2.JPG"]

    def test_text_with_some_names_of_images_is_text(self, listed):
        source = listed("path,label,note", "1.png,a,see IMG_1.JPG", "2.png,b,blurred")
        assert list(source.values["note"]) == ["see IMG_1.JPG", "blurred"]


def test_spaces_stay_unless_the_first_row_has_one_after_every_delimiter(listed):
    source = listed("path,label,note", "1.png, a,  b", "2.png, c, d")
    assert source.classes == (" a", " c")
    assert list(source.values["note"]) == ["  b", " d"]
    source = listed("path, label, note", "1.png, a, b", "2.png, c, d")
    assert source.classes == ("a", "c")


@given(st.lists(st.floats(), min_size=1), st.booleans())
def test_any_floats_come_back(numbers, are_short):
    cells = [repr(number).removesuffix(".0") if are_short else repr(number) for number in numbers]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        Path(folder, "1.png").touch()
        path.write_text("path,label,x\n" + "".join(f"1.png,a,{cell}\n" for cell in cells))
        source = open_source(path)[""]
        column = source.values["x"]
    if source.fields[1].kind == "text":
        assert list(column) == cells
    else:
        np.testing.assert_array_equal(column, numbers)
