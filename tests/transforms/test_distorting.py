"""RandomPerspective, ElasticTransform and LinearTransformation, compared with torchvision's."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import assert_same_distribution, drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")
F = v2.functional

SIZE = (37, 53)


@pytest.mark.parametrize("kind", ["photo", "noise", "one", "checkerboard"])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("fill", [0, None, (10, 100, 250)])
def test_perspectives_match_torchvision(kind, interpolation, fill):
    fill = 9 if kind == "one" and fill else fill
    transform = T.RandomPerspective(0.7, 1.0, interpolation, fill)
    for size in (SIZE, (2, 3), (1, 1), (1, 9)):
        pixels = picture(size, kind)
        for row in drawn(transform, size, 3).tolist():
            height, width = size
            before = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
            after = np.array(row[1:], int).reshape(4, 2).tolist()
            mode = v2.InterpolationMode(interpolation)
            theirs = list(map(float, fill)) if isinstance(fill, tuple) else fill
            try:
                expected = F.perspective(to_tensor(pixels), before, after, mode, theirs)
            except RuntimeError:  # a single row or column has no perspective map
                continue
            assert_close(transform.apply(pixels, row), to_array(expected), "perspective and elastic")


def test_corners_are_drawn_like_torchvision():
    torch.manual_seed(0)
    image, seen = torch.empty(3, 41, 60), []

    class Recording(v2.RandomPerspective):
        def transform(self, inpt, params):
            seen.append(params["coefficients"])
            return inpt

    recording = Recording(0.5, 1.0)
    for _ in range(2000):
        recording(image)
    rows = drawn(T.RandomPerspective(0.5, 1.0), (41, 60), 4000)
    for column in range(1, 9):
        low, high = rows[:, column].min(), rows[:, column].max()
        side, middle = ((59, 15) if column % 2 else (40, 10)), None
        assert (low, high) in [(0, side[1]), (side[0] - side[1], side[0])], middle
    from torchvision.transforms.functional import _get_perspective_coeffs

    before = [[0, 0], [59, 0], [59, 40], [0, 40]]
    ours = [_get_perspective_coeffs(before, np.reshape(row[1:], (4, 2)).tolist()) for row in rows[:2000]]
    for mine, other in zip(np.array(ours).T, np.array(seen).T, strict=True):
        assert_same_distribution(np.round(mine, 6), np.round(other, 6))


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("kind", ["photo", "one", "checkerboard"])
def test_elastic_maps_match_torchvision(interpolation, kind):
    transform = T.ElasticTransform((80.0, 40.0), 3.0, interpolation, 30)
    for size in (SIZE, (5, 81), (1, 9)):
        pixels = picture(size, kind)
        [[seed]] = drawn(transform, size, 1).tolist()
        mode = v2.InterpolationMode(interpolation)
        expected = F.elastic(to_tensor(pixels), transform.displacement(seed, *size), mode, 30)
        assert_close(transform.apply(pixels, [seed]), to_array(expected), "perspective and elastic")


def test_displacements_have_the_size_of_torchvisions():
    torch.manual_seed(0)
    theirs = v2.ElasticTransform([50.0, 20.0], [4.0, 6.0])
    shares = [theirs.make_params([torch.empty(3, 60, 90)])["displacement"] for _ in range(20)]
    ours = T.ElasticTransform([50.0, 20.0], [4.0, 6.0])
    for axis in (0, 1):
        expected = torch.cat(shares)[..., axis].std()
        got = torch.cat([ours.displacement(seed, 60, 90) for seed in range(20)])[..., axis]
        assert abs(got.std() / expected - 1) < 0.1
        assert abs(got.mean()) < expected / 3


def test_linear_transformations_match_torchvision():
    rng = np.random.default_rng(0)
    matrix = torch.from_numpy(rng.normal(size=(36, 36)).astype(np.float32))
    mean = torch.from_numpy(rng.normal(size=36).astype(np.float32))
    image = torch.from_numpy(rng.random((3, 3, 4), np.float32))
    ours, theirs = T.LinearTransformation(matrix, mean), v2.LinearTransformation(matrix, mean)
    assert torch.equal(ours(image), theirs(image))
    assert torch.allclose(
        torch.from_numpy(to_array(theirs(image)).copy()), torch.from_numpy(ours(to_array(image)))
    )
    batch = torch.stack([image, image * 2])
    assert torch.equal(ours(batch), theirs(batch))
    doubles = T.LinearTransformation(matrix.double(), mean.double())
    assert doubles(to_array(image)).dtype == np.float32
    with pytest.raises(OptionError, match="must be given floating-point pixels, got uint8: put ToTensor"):
        ours(picture((3, 4)))
    with pytest.raises(OptionError, match="must have 36 numbers"):
        ours(torch.zeros(3, 3, 3))
    with pytest.raises(OptionError, match="must be \\(D, D\\)"):
        T.LinearTransformation(matrix[:3], mean)
