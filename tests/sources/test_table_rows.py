"""Tables without images: what is certain becomes records, everything else is refused with both readings."""

import pytest

from fastload import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources import open_source
from tests.folders import encoded, pixels


def listed(folder, text, columns=None, name="t.csv"):
    (folder / name).write_text(text)
    return open_source(folder / name, columns=columns)[""]


def test_columns_become_fields_and_only_label_gives_labels(tmp_path):
    source = listed(tmp_path, "text,class,label\nfine,a,1\nbad,b,0\n")
    assert not source.has_images
    assert source.fields == (Field("text", "text"), Field("class", "text"), Field.label())
    assert source.read(0).image is None
    assert source.read(0).values == {"text": "fine", "class": "a", "label": 1}


def test_numbers_alone_are_records(tmp_path):
    source = listed(tmp_path, "x,y\n0.5,1\n1.5,2\n")
    assert [source.read(at).values for at in (0, 1)] == [{"x": 0.5, "y": 1}, {"x": 1.5, "y": 2}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("label,picture\ncat,a.jpg\ndog,b.jpg\n", "'a.jpg', which ends like an image's name"),
        ("id,label\nx,cat\nphotos/a.PNG,dog\n", "'photos/a.PNG', which ends like an image's name"),
        ("label,item\ncat,train/0001\ndog,train/0002\n", "'train/0001', which looks like a path"),
        ("id,label\n7,cat\n0001,dog\n", "'0001', the name of an image file below the table's folder"),
        ("id,label\n7,cat\nin/0001,dog\n", "'in/0001', the name of an image file below"),
    ],
)
def test_a_column_that_may_name_images_is_refused_with_both_readings(tmp_path, text, why):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0001.jpg").write_bytes(encoded(pixels(1), ".jpg"))
    with pytest.raises(SourceError) as raised:
        listed(tmp_path, text)
    for part in (why, "=path (images of the records)", "=text (records without images)"):
        assert part.replace("'", "") in str(raised.value).replace("'", "")


def test_the_kind_of_the_column_decides(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(pixels(1), ".jpg"))
    text = "label,picture\ncat,a.jpg\n"
    assert listed(tmp_path, text, {"picture": "path"}).has_images
    source = listed(tmp_path, text, {"picture": "text"})
    assert source.read(0).values == {"label": 0, "picture": "a.jpg"}


@pytest.mark.parametrize("text", ["fine,1\nbad,0\n", "7,1\n8,0\n", "good,\nbad,x\n", "v1.5 is out,1\nx,0\n"])
def test_a_table_without_a_header_is_refused(tmp_path, text):
    with pytest.raises(SourceError, match="must begin with a header that names its columns"):
        listed(tmp_path, text)


def test_images_of_which_none_exists_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/cat-1.jpg").write_bytes(b"")
    with pytest.raises(SourceError, match=r"'cat_1\.jpg', which is no file in .*there are 'in/cat-1\.jpg'"):
        listed(tmp_path, "cat_1.jpg,cat\ncat_2.jpg,dog\n")
    source = listed(tmp_path, "image,label\ncat_1.jpg,cat\n", {"image": "text"})
    assert source.read(0).values == {"image": "cat_1.jpg", "label": 0}


def test_a_kind_for_labels_needs_their_column(tmp_path):
    with pytest.raises(OptionError, match="must have a column 'label'"):
        listed(tmp_path, "text,n\nx,1\n", {"label": "text"})
