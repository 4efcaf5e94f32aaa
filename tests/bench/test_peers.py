"""Every call of every installed library gives nearly PIL's pixels."""

import importlib
import sys
import warnings
from pathlib import Path

import pytest

from fastload.bench import operations as do
from fastload.bench.decoding import _input, as_levels, compare_operation, difference, library_peers
from fastload.bench.operations import OPERATIONS
from fastload.bench.peers import Peer

BY_KEY = {operation.key: operation for operation in OPERATIONS}

# The mean difference from PIL that is allowed, in levels of 255: 1.5 × the one measured on these images.
# Operations that are not listed are equal within rounding.
ROUNDING = 0.75
LIMITS = {
    "resize": (7, "not antialiased, except fastload's and torchvision's default"),
    "resized-crop": (3, "not antialiased"),
    "jitter": (2, "8 bits of HSV, rounded by each in its own way"),
    "detection": (1, "rounded by each in its own way"),
    "training": (3, "not antialiased"),
}

# torchvision's own decoder is a compiled library, which does not load with every torch.
COMPILED = "image extension"


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("a source distribution has no benchmarks", allow_module_level=True)
sys.path.append(str(BENCHMARKS))
load_peer = importlib.import_module("_peers").load_peer
PEERS = [*library_peers(), load_peer("torchvision", "_peer_torchvision")]
CALLS = [(peer, *call) for peer in PEERS for call in peer.calls]


def results(peer, key, run, images):
    values = [_input(BY_KEY[key], image, peer) for image in images]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision warns that its decoders will be removed
        return [run(value) for value in values]


@pytest.fixture(scope="module")
def references(made):
    return {key: results(PEERS[0], key, run, made[0]) for key, _, run in PEERS[0].calls}


def test_pil_does_every_operation():
    assert PEERS[0].library == "PIL"
    assert {key for key, _, _ in PEERS[0].calls} == set(BY_KEY)


def test_opencv_does_every_operation():
    assert {key for key, _, _ in PEERS[1].calls} == set(BY_KEY)


@pytest.mark.parametrize(
    ("peer", "key", "name", "run"),
    CALLS,
    ids=[f"{peer.library}-{key}-{name}" for peer, key, name, _ in CALLS],
)
def test_call_gives_about_the_pixels_of_pil(peer, key, name, run, made, references):
    try:
        found = results(peer, key, run, made[0])
    except RuntimeError as error:
        if COMPILED not in str(error):
            raise
        pytest.skip("torchvision's compiled decoder does not load here")
    expected = references[key]
    is_normalised = BY_KEY[key].is_normalised
    shapes = [as_levels(image, is_normalised).shape for image in found]
    assert shapes == [as_levels(image, is_normalised).shape for image in expected]
    limit, _ = LIMITS.get(key, (ROUNDING, ""))
    apart = difference(found, expected, is_normalised)
    assert apart.mean <= limit
    if key not in LIMITS:
        assert apart.likeness == "equal"


# Pairs of calls with equal quality.
EQUAL = [
    ("fastload", "resize", "Resize(bilinear)"),
    ("fastload", "training", "antialiased"),
]


@pytest.mark.parametrize(("library", "key", "call"), EQUAL)
def test_pairs_of_equal_quality_are_equal(library, key, call, made, references):
    [(peer, run)] = [
        (peer, run) for peer, *names, run in CALLS if [peer.library, *names] == [library, key, call]
    ]
    apart = difference(results(peer, key, run, made[0]), references[key], BY_KEY[key].is_normalised)
    assert apart.likeness == "equal"


def test_every_call_is_for_an_operation_that_is_measured():
    assert {key for _, key, _, _ in CALLS} <= set(BY_KEY)


def test_rows_come_in_the_order_of_the_peers_with_a_time_for_each_run(made):
    images, _ = made
    operation = BY_KEY["flip"]
    found = compare_operation(operation, PEERS, images, 2, 0.0)
    libraries = [peer.library for peer in PEERS for _ in peer.calls_for(operation.key)]
    assert [row.library for row in found.rows] == libraries
    assert all(len(row.seconds) == 2 and min(row.seconds) > 0 for row in found.rows)
    assert found.rows[0].difference.most == 0


def test_call_that_fails_is_listed_with_its_reason(made):
    broken = Peer("broken", "1.0", [("flip", "call", lambda pixels: 1 / 0)])
    found = compare_operation(BY_KEY["flip"], [PEERS[0], broken], made[0], 1, 0.0)
    assert [row.library for row in found.rows] == ["PIL"]
    assert found.missing == ("broken, call: division by zero",)


def test_every_library_starts_from_the_same_pixels(made):
    for peer in PEERS:
        if peer.calls_for("flip"):
            as_given = as_levels(_input(BY_KEY["flip"], made[0][0], peer))
            assert (as_given == made[0][0].pixels).all()


def test_library_that_is_not_installed_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert load_peer("torchvision", "_peer_torchvision").reason == "not installed"


def test_boxes_are_inside_the_image():
    for seed in range(200):
        shape = (10 + seed % 90, 10 + seed * 7 % 190)
        box = do.draw_box(shape, seed)
        assert box.top >= 0
        assert box.left >= 0
        assert 0 < box.height <= shape[0] - box.top
        assert 0 < box.width <= shape[1] - box.left


def test_keys_are_unique():
    assert len(BY_KEY) == len(OPERATIONS)
