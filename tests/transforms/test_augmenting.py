"""AutoAugment and AugMix, compared with torchvision's; RandomChoice and RandomOrder."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from tests.transforms.samples import assert_same_distribution, drawn, keys, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")

SIZE = (37, 53)


@pytest.mark.parametrize("policy", list(T.AutoAugmentPolicy))
def test_policies_match_torchvision(policy):
    record = []

    class Recording(v2.AutoAugment):
        def _apply_image_or_video_transform(self, image, transform_id, magnitude, **_):
            record.append((transform_id, magnitude))
            return image

    torch.manual_seed(0)
    theirs, image = Recording(v2.AutoAugmentPolicy(policy.value)), torch.empty(3, 60, 331)
    for _ in range(3000):
        theirs(image)
    ours = T.AutoAugment(policy)
    rows = drawn(ours, (60, 331), 12_000)
    done = [(ours._names[int(n)], s) for row in rows for n, s in row.reshape(2, 2) if n]
    assert abs(len(done) / 12_000 - len(record) / 3000) < 0.08
    assert set(done) >= set(record)
    for name in {name for name, _ in record}:
        shares = [sum(each == name for each, _ in all_) / len(all_) for all_ in (done, record)]
        assert abs(shares[0] - shares[1]) < 0.03, name


def test_augmix_pixels_match_torchvision():
    pixels = picture(SIZE)

    class Given(v2.AugMix):
        """AugMix with given shares and operations."""

        def __init__(self, row, names, **options):
            super().__init__(**options)
            self._row, self._names, self._count = row, names, 0

        def _sample_dirichlet(self, params):
            self._count += 1
            if self._count == 1:
                return torch.tensor([[self._row[0], 1.0]])
            return torch.tensor([self._row[1::5]])

        def _apply_image_or_video_transform(self, image, transform_id, magnitude, **kept):
            chain, turn = divmod(self._turn, 2)
            self._turn += 1
            name, strength = self._row[2 + 5 * chain + 2 * turn : 4 + 5 * chain + 2 * turn]
            return super()._apply_image_or_video_transform(image, self._names[int(name)], strength, **kept)

        _turn = 0

    ours = T.AugMix(chain_depth=2, fill=9)
    for row in drawn(ours, SIZE, 20).tolist():
        # 1.0 instead of the second share, which ours already contain.
        expected = Given(row, ours._names, chain_depth=2, fill=9)(to_tensor(pixels))
        assert_close(ours.apply(pixels, row), to_array(expected), "operations in sequence")


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5])
def test_mixing_shares_follow_the_dirichlet_distribution(alpha):
    rows = T.AugMix(alpha=alpha, mixture_width=3).draw(keys(4000), np.full((4000, 2), 8))
    length = (rows.shape[1] - 1) // 3
    assert np.allclose(rows[:, 0] + rows[:, 1::length].sum(axis=1), 1)
    torch.manual_seed(0)
    expected = torch.distributions.Beta(alpha, alpha).sample((4000,)).numpy()
    assert_same_distribution(rows[:, 0], expected)
    shares = rows[:, 1] / np.maximum(1 - rows[:, 0], 1e-12)
    assert_same_distribution(shares, torch.distributions.Beta(alpha, 2 * alpha).sample((4000,)).numpy())


def test_choices_are_as_frequent_as_their_weights():
    transform = T.RandomChoice([T.CenterCrop(8), T.Compose([T.RandomCrop(9), T.RandomInvert()])], p=[1, 3])
    rows = drawn(transform, (20, 20))
    assert abs(rows[:, 0].mean() - 0.75) < 5 * np.sqrt(0.1875 / len(rows))
    sizes = transform.sizes_after(np.full((len(rows), 2), 20), rows)
    pixels = picture((20, 20))
    for row, size in zip(rows[:20].tolist(), sizes.tolist(), strict=False):
        assert list(transform.apply(pixels, row).shape[:2]) == size == ([9, 9] if row[0] else [8, 8])


def test_every_order_is_equally_frequent_and_draws_for_its_sizes():
    transform = T.RandomOrder([T.Pad(3), T.RandomCrop(10), T.Resize((30, 30))])
    rows = drawn(transform, (12, 12))
    counts = np.unique(rows[:, :3], axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert np.abs(counts - len(rows) / 6).max() < 5 * np.sqrt(len(rows) / 6)
    sizes = transform.sizes_after(np.full((len(rows), 2), 12), rows)
    pixels = picture((12, 12))
    for row, size in zip(rows[:40].tolist(), sizes.tolist(), strict=False):
        assert list(transform.apply(pixels, row).shape[:2]) == size
