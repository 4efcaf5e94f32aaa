import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from fastload import pack
from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources import DatasetSource
from fastload.sources.dataset.samples import infer_fields, to_image, to_values

RGB = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
GREY = RGB[:, :, 0]


def inferred(value):
    [field] = infer_fields((b"", value))
    return field


def in_dict(value):
    [field] = infer_fields({"image": b"", "value": value})
    return field


def stored(field, value):
    return to_values([field], {field.name: value})[field.name]


@pytest.mark.parametrize(
    ("image", "pixels"),
    [
        (RGB, RGB),
        (GREY, GREY),
        (GREY[:, :, None], GREY),
        (RGB[::-1, ::2], RGB[::-1, ::2]),
        (torch.from_numpy(RGB).permute(2, 0, 1), RGB),
        (torch.from_numpy(GREY.copy()), GREY),
        (torch.from_numpy(GREY.copy())[None], GREY),
        (torch.from_numpy(RGB).permute(2, 0, 1).requires_grad_(False), RGB),
        (Image.fromarray(RGB), RGB),
        (Image.fromarray(GREY), GREY),
    ],
)
def test_pixels_of_any_type_become_rows_of_uint8(image, pixels):
    taken = to_image(image)
    assert taken.dtype == np.uint8
    assert taken.flags.c_contiguous
    np.testing.assert_array_equal(taken, pixels)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_every_pil_mode_of_8_bits_is_taken_as_pil_converts_it(mode):
    image = Image.fromarray(RGB).convert("RGBA" if mode == "LA" else "RGB").convert(mode)
    grey = mode in ("1", "L", "LA")
    np.testing.assert_array_equal(to_image(image), image.convert("L" if grey else "RGB"))


@pytest.mark.parametrize("data", [b"\xff\xd8", bytearray(b"\xff\xd8"), memoryview(b"\xff\xd8")])
def test_encoded_bytes_stay_as_they_are(data):
    assert to_image(data) == b"\xff\xd8"
    assert type(to_image(data)) is bytes


@pytest.mark.parametrize("image", [RGB / 255, torch.rand(3, 4, 6)])
def test_float_image_is_refused_with_the_transform_to_drop(image):
    with pytest.raises(SourceError, match=r"must be of integers, .*got .*float.*: drop ToTensor"):
        to_image(image)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float16", "float32"])
def test_arrays_of_all_types_of_images_stay_as_they_are(dtype):
    image = np.arange(4 * 6 * 4).reshape(4, 6, 4).astype(dtype)
    np.testing.assert_array_equal(to_image(image), image)
    assert to_image(image).dtype == dtype
    if not dtype.startswith("float"):
        tensor = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
        np.testing.assert_array_equal(to_image(tensor), image)


@pytest.mark.parametrize(
    "image",
    [
        RGB.astype(np.int64),
        RGB.transpose(2, 0, 1),
        RGB[None],
        RGB[:0],
        torch.zeros((30, 40, 3), dtype=torch.uint8),
        torch.zeros(4, dtype=torch.uint8),
        np.zeros((4, 6), bool),
    ],
)
def test_other_arrays_are_refused_with_their_dtype_and_shape(image):
    with pytest.raises(SourceError, match=r"must be of uint8, .* and of shape .*, got .* of .* and shape"):
        to_image(image)


@pytest.mark.parametrize("mode", ["I", "F", "I;16"])
def test_pil_images_of_more_than_8_bits_keep_their_numbers(mode):
    image = to_image(Image.new(mode, (3, 2), 7))
    assert (image.dtype, image.shape) == (np.float32 if mode == "F" else np.uint16, (2, 3))
    assert (image == 7).all()


def test_a_pil_image_of_32_bits_is_refused_unless_16_hold_it():
    with pytest.raises(SourceError, match="of mode I must hold integers from 0 to 65535"):
        to_image(Image.new("I", (3, 2), 70_000))


@pytest.mark.parametrize("image", ["photo.jpg", None, [[1, 2]], 3])
def test_objects_that_are_not_images_are_refused(image):
    with pytest.raises(SourceError, match=f"must be a PIL image.*got {type(image).__name__}"):
        to_image(image)


@pytest.mark.parametrize("label", [3, np.uint8(3), np.int32(3), torch.tensor(3), np.array(3)])
def test_integer_target_is_the_label(label):
    assert inferred(label) == Field.label()
    assert stored(Field.label(), label) == 3
    assert type(stored(Field.label(), label)) is int
    assert infer_fields({"image": b"", "label": label}) == (Field.label(),)


@pytest.mark.parametrize(
    ("value", "kind", "dtype", "shape"),
    [
        (0.5, "scalar", "float64", ()),
        (np.float32(0.5), "scalar", "float32", ()),
        (torch.tensor(0.5), "scalar", "float32", ()),
        (True, "scalar", "bool", ()),
        ([1.0, 2.0], "vector", "float64", (2,)),
        ((1, 2, 3), "vector", "int64", (3,)),
        (torch.zeros(5), "vector", "float32", (5,)),
        (np.zeros(2, ">i2"), "vector", "int16", (2,)),
        ([[1, 2, 3, 4]], "ragged", "int64", (4,)),
        (torch.zeros(0, 4), "ragged", "float32", (4,)),
        (np.zeros((2, 3, 4), bool), "ragged", "bool", (3, 4)),
        ("a cat", "text", "uint8", ()),
        (b"\0\1", "bytes", "uint8", ()),
    ],
)
def test_field_is_inferred_from_the_first_value(value, kind, dtype, shape):
    assert inferred(value) == Field("target", kind, dtype, shape)
    assert in_dict(value) == Field("value", kind, dtype, shape)
    taken = stored(in_dict(value), value)
    if kind in ("text", "bytes"):
        assert taken == value
    else:
        np.testing.assert_array_equal(taken, np.asarray(value))
        assert np.asarray(taken).dtype.isnative


def test_integer_in_a_dict_keeps_its_name_and_dtype():
    assert in_dict(np.uint8(3)) == Field("value", "scalar", "uint8")
    assert in_dict(3) == Field("value", "scalar", "int64")


def test_target_dict_is_its_own_fields():
    target = {"boxes": np.zeros((2, 4), np.float32), "labels": [1, 2], "id": 7, "note": "x"}
    assert infer_fields((b"", target)) == (
        Field("boxes", "ragged", "float32", (4,)),
        Field("labels", "vector", "int64", (2,)),
        Field("id", "scalar", "int64"),
        Field("note", "text"),
    )


@pytest.mark.parametrize(
    "value",
    [None, object(), {1}, ["a", 1], 1j, np.array(["a"]), 2**70, [[1], [2, 3]]],
)
def test_value_that_cannot_be_stored_is_refused(value):
    with pytest.raises(SourceError, match="value must be"):
        in_dict(value)


@pytest.mark.parametrize("sample", [b"", 3, (b"",), {"photo": b"", "label": 1}, None])
def test_sample_of_another_form_is_refused(sample):
    with pytest.raises(SourceError, match=r"must be \(image, target\) or a dict with 'image', got"):
        infer_fields(sample)


@pytest.mark.parametrize(
    ("field", "value", "wanted", "got"),
    [
        (Field.label(), 3.5, "one int64", "float 3.5"),
        (Field.label(), "cat", "one int64", "str"),
        (Field.label(), [1], "one int64", "list of 1"),
        (Field.label(), 2**63, "one int64", "int 9223372036854775808"),
        (Field("x", "scalar", "uint8"), 256, "one uint8", "int 256"),
        (Field("x", "scalar", "uint64"), -1, "one uint64", "int -1"),
        (Field("x", "scalar", "float64"), 2**53 + 1, "one float64", "int 9007199254740993"),
        (Field("x", "scalar", "float32"), 1e300, "one float32", "float 1e"),
        (Field("x", "scalar", "int64"), float("nan"), "one int64", "float nan"),
        (Field("x", "vector", "int64", (2,)), [1, 2, 3], r"int64 of shape \(2,\)", "list of 3"),
        (
            Field("x", "ragged", "float32", (4,)),
            np.zeros((2, 5), np.float32),
            r"any number of rows, float32 of shape \(4,\) each",
            r"ndarray of float32 and shape \(2, 5\)",
        ),
        (
            Field("x", "ragged", "int64"),
            3,
            r"any number of rows, int64 of shape \(\) each",
            "int 3",
        ),
        (Field("x", "text"), b"a", "text", "bytes"),
        (Field("x", "bytes"), "a", "bytes", "str"),
    ],
)
def test_value_that_does_not_fit_its_field_is_refused_with_both(field, value, wanted, got):
    with pytest.raises(SourceError, match=f"{field.name} must be {wanted}, got {got}"):
        stored(field, value)


@pytest.mark.parametrize("values", [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}])
def test_missing_and_further_values_are_refused(values):
    fields = [Field("a", "scalar", "int64"), Field("b", "scalar", "int64")]
    with pytest.raises(SourceError, match=r"must hold the fields \['a', 'b'\], got"):
        to_values(fields, values)


def test_empty_list_is_no_rows():
    assert stored(Field("boxes", "ragged", "float32", (4,)), []).shape == (0, 4)
    assert stored(Field("labels", "ragged", "int64"), []).shape == (0,)


@pytest.mark.parametrize(
    ("value", "became"),
    [([2**53 + 1, 0.5], "9007199254740992.0"), ([True, 2], "1"), ((0.5, True), "1.0")],
)
def test_list_whose_numbers_numpy_would_change_is_refused(value, became):
    with pytest.raises(SourceError, match=rf"value must be a list of numbers of one kind, .*become {became}"):
        in_dict(value)


def test_pil_image_beside_the_image_is_an_image_without_loss():
    palette = Image.fromarray(GREY).convert("P", palette=Image.Palette.ADAPTIVE)
    for image, pixels in [(Image.fromarray(RGB), RGB), (Image.fromarray(GREY), GREY), (palette, palette)]:
        assert in_dict(image) == Field("value", "image", encoding="keep")
        np.testing.assert_array_equal(stored(in_dict(image), image), np.asarray(pixels))
    assert inferred(palette) == Field("target", "image", encoding="keep")


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_pil_image_beside_the_image_keeps_its_alpha(mode):
    image = Image.fromarray(RGB).convert("RGBA")
    image.putalpha(Image.fromarray(255 - GREY))
    image = image.convert(mode)
    png = stored(in_dict(image), image)
    with Image.open(io.BytesIO(png)) as back:
        assert (back.format, back.mode) == ("PNG", mode)
        np.testing.assert_array_equal(np.asarray(back), np.asarray(image))


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV"])
def test_pil_image_beside_the_image_that_would_change_is_refused(mode):
    image = Image.fromarray(RGB).convert(mode)
    with pytest.raises(SourceError, match=f"got a PIL image of mode '{mode}'"):
        stored(in_dict(image), image)


def test_further_image_is_converted_like_the_image():
    mask = stored(Field("mask", "image", encoding="keep"), Image.fromarray(GREY))
    np.testing.assert_array_equal(mask, GREY)


numbers = hnp.arrays(st.sampled_from(["int8", "uint8", "int64", "uint64", "float16", "float64", "bool"]), 3)


@given(numbers, st.sampled_from(["int8", "uint8", "int64", "uint64", "float32", "float64", "bool"]))
def test_no_number_changes_unless_a_float_is_rounded(array, dtype):
    field = Field("x", "vector", dtype, (3,))
    try:
        taken = stored(field, array)
    except SourceError:
        return
    assert taken.dtype == dtype
    for before, after in zip(array.tolist(), taken.tolist(), strict=True):
        both_float = isinstance(before, float) and isinstance(after, float)
        expected = float(np.float32(before)) if both_float and dtype == "float32" else before
        assert after == expected or (both_float and np.isnan(after) and np.isnan(before))


@given(hnp.arrays(st.sampled_from(["int8", "uint8", "bool", "float16"]), 3))
def test_numbers_that_fit_are_taken(array):
    taken = stored(Field("x", "vector", "float64", (3,)), array)
    np.testing.assert_array_equal(taken, array)


@pytest.mark.parametrize("first", [b"", b"abc"])
def test_bytes_of_no_image_are_to_be_named(tmp_path, first):
    with pytest.raises(SourceError, match=r"if it is not an image, make each sample a dict"):
        pack([(first, 1), (b"abc", 2)], tmp_path / "x.fl", workers=1)


def test_a_dtype_that_numpy_lacks_is_named():
    with pytest.raises(SourceError, match=r"v must be of a dtype among .*torch\.bfloat16"):
        DatasetSource([{"v": torch.ones(3, dtype=torch.bfloat16)}])
