"""A manifest of any content is refused with a FormatError or a DamageError, and at once."""

import contextlib
import copy
import hashlib
import json

import numpy as np
import pytest

import fastload
from fastload.errors import DamageError, DecodeError, FormatError
from fastload.packing.verify import verify
from fastload.shards.manifest import Manifest, read_manifest
from tests.hostile.sealing import sealed


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(content, path, value):
    content = copy.deepcopy(content)
    target = content
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return content


def deep(levels):
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(2**70), 1.5, 1e300, float("nan"),
    "", "x", "0" * 8, "\ud800", "../x", "a" * 100_000, [], [[]], [None], [1, 2, 3], {}, {"a": 1}, deep(100),
]  # fmt: skip


def read_all(path):
    """Use a dataset as users do; fail the test on any error that is not fastload's own."""
    refusals = (FormatError, DamageError, DecodeError)
    try:
        dataset = fastload.PackedDataset(path)
    except refusals:
        return
    for read in (lambda: dataset.targets, lambda: dataset.fetch_into(range(len(dataset)), Memory())):
        with contextlib.suppress(refusals):
            read()
    for index in range(min(len(dataset), 8)):
        try:
            dataset[index]
            {field.name: dataset.read(index)[field.name] for field in read_manifest(path).fields}
        except refusals:
            pass


class Memory:
    finishes_on_device = False

    def empty(self, shape, dtype):
        import torch

        assert np.prod(shape) < 1e9
        return torch.empty(shape, dtype=dtype)


def test_every_value_of_a_manifest_replaced_by_any_other_is_refused_or_read(dataset):
    content = json.loads((dataset / "manifest.json").read_bytes())
    for path in places(content):
        if path in ((), ("sha256",)):
            continue
        for value in VALUES:
            (dataset / "manifest.json").write_bytes(sealed(changed(content, path, value)))
            try:
                manifest = read_manifest(dataset)
            except FormatError:
                continue
            assert Manifest.from_bytes(manifest.to_bytes(), "again") == manifest or "made" in path
            if path[0] != "made":
                read_all(dataset)


def test_every_member_of_a_manifest_that_is_missing_is_refused(dataset):
    content = json.loads((dataset / "manifest.json").read_bytes())
    for path in places(content):
        if not path or not isinstance(path[-1], str) or (path[0] == "made" and len(path) > 1):
            continue
        less = copy.deepcopy(content)
        target = less
        for key in path[:-1]:
            target = target[key]
        del target[path[-1]]
        (dataset / "manifest.json").write_bytes(
            sealed(less) if path != ("sha256",) else json.dumps(less).encode()
        )
        with pytest.raises(FormatError):
            read_manifest(dataset)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"format":' * 100_000,
        b'{"format": "fastload", "made": ' + b"[" * 900 + b"]" * 900 + b"}",
        b"\xff\xfe" + '{"format": "fastload"}'.encode("utf-16-le"),
        b'{"format": "fastload", "version": ' + b"9" * 5000 + b"}",
    ],
    ids=["lists", "objects", "made", "utf-16", "number"],
)
def test_json_without_end_is_refused(dataset, data):
    (dataset / "manifest.json").write_bytes(data)
    with pytest.raises(FormatError):
        read_manifest(dataset)
    assert verify(dataset).damages


def test_a_member_given_twice_is_refused(dataset):
    data = (dataset / "manifest.json").read_bytes()
    twice = data.replace(b'"container"', b'"kept": [],\n "container"', 1)
    digest = json.loads(data)["sha256"].encode()
    blank = twice.replace(digest, b"0" * 64, 1)
    sealed_again = blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)
    (dataset / "manifest.json").write_bytes(sealed_again)
    with pytest.raises(FormatError, match="'kept' is given twice"):
        read_manifest(dataset)
