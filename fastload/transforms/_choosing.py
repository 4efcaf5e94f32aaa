"""Random choice of transforms: RandomApply, RandomChoice, RandomOrder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastload.errors import OptionError
from fastload.transforms._mixing import Mix, RandomMix
from fastload.transforms.compose import Step, flattened
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.options import to_probability
from fastload.transforms.transform import Parameters, Pixels, Transform


class Chain:
    """Sequence of fastload's transforms inside another, the owner; their parameters lie side by side."""

    def __init__(self, transforms: Sequence[Step], owner: str) -> None:
        self._steps: list[Transform] = []
        self._owner = owner
        for step in flattened(transforms):
            if not isinstance(step, Transform):
                raise OptionError(
                    f"{owner} takes transforms of fastload's for images, got {step!r}: "
                    f"torchvision.transforms.v2.{owner} takes any"
                )
            self._steps.append(step)
        self.width = sum(step.width for step in self._steps)
        self.takes_any_dtype = all(step.takes_any_dtype for step in self._steps)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the parameters of all transforms."""
        parts = [np.empty((len(sizes), 0))]
        for place, step in enumerate(self._steps):
            parts.append(step.draw(draws.at(place), sizes))
            sizes = step.sizes_after(sizes, parts[-1])
        return np.concatenate(parts, axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """Return the sizes after all transforms."""
        first = 0
        for step in self._steps:
            sizes = step.sizes_after(sizes, parameters[:, first : first + step.width])
            first += step.width
        return sizes

    def require_channels_kept(self, channels: int) -> None:
        """Raise OptionError if the result has another number of channels than other images."""
        after = channels
        for step in self._steps:
            after = step.channels_after(after)
        if after != channels:
            raise OptionError(f"{self._owner} must keep the {channels} channels of an image, got {after}")

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Apply all transforms to one image."""
        first = 0
        for step in self._steps:
            image = step.apply_checked(image, parameters[first : first + step.width])
            first += step.width
        return image


class _Nesting(Transform):
    """Base class of transforms that hold chains of others; `_columns` are the parameters of each chain."""

    def __init__(self, chains: list[Chain], own_width: int) -> None:
        self._chains = chains
        ends = (own_width + np.cumsum([chain.width for chain in chains])).tolist()
        self._columns = [slice(end - chain.width, end) for chain, end in zip(chains, ends, strict=True)]
        self.width = ends[-1]

    @property
    def takes_any_dtype(self) -> bool:  # type: ignore[override]
        """True if all transforms accept pixels of any dtype."""
        return all(chain.takes_any_dtype for chain in self._chains)

    def channels_after(self, channels: int) -> int:
        """Return the same number; raise OptionError if it would depend on the choice."""
        for chain in self._chains:
            chain.require_channels_kept(channels)
        return channels

    def _apply_chain(self, number: int, image: Pixels, parameters: Sequence[float]) -> Pixels:
        return self._chains[number].apply(image, parameters[self._columns[number]])


class RandomApply(_Nesting):
    """Applies all of some transforms, or none.

    Args:
        transforms: Transforms of fastload's, in order.
        p: The probability that they are applied to an image.
    """

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms = transforms
        self.p = to_probability(p)
        super().__init__([Chain(transforms, "RandomApply")], 1)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw 1 for images that they are applied to and 0 for others, then the parameters of each."""
        applied = (draws.uniform(1) < self.p).astype(np.float64)
        return np.concatenate((applied, self._chains[0].draw(draws, sizes)), axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """Return the sizes, changed where the transforms are applied."""
        after = self._chains[0].sizes_after(sizes, parameters[:, 1:])
        return np.where(parameters[:, :1] > 0, after, sizes)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Apply all transforms, or none."""
        return self._apply_chain(0, image, parameters) if parameters[0] else image


class RandomChoice(_Nesting):
    """Applies one of some transforms.

    Args:
        transforms: Transforms of fastload's, each possibly a Compose of such. If all are MixUp or CutMix, the
            result is called with a batch, as they are.
        p: A weight for each transform; None for equal weights.
    """

    def __new__(  # type: ignore[misc]
        cls, transforms: Sequence[Transform] | Sequence[Mix] = (), p: list[float] | None = None
    ) -> RandomChoice | RandomMix:
        """Make a RandomMix if all transforms are MixUp or CutMix, which work on batches."""
        mixes = [step for step in transforms if isinstance(step, Mix)] if _is_list(transforms) else []
        if mixes and len(mixes) == len(transforms):
            return RandomMix(mixes, _to_shares(len(mixes), p))
        return super().__new__(cls)

    def __init__(self, transforms: Sequence[Transform] | Sequence[Mix], p: list[float] | None = None) -> None:
        super().__init__(_to_chains(transforms, "RandomChoice"), 1)
        self.transforms = transforms
        self.p = _to_shares(len(transforms), p)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the number of the transform to apply, then the parameters of each."""
        bounds = np.cumsum(self.p)[:-1]
        chosen = np.searchsorted(bounds, draws.uniform(1)[:, 0], side="right")
        parts = [chain.draw(draws.at(place), sizes) for place, chain in enumerate(self._chains)]
        return np.concatenate((chosen[:, None], *parts), axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """Return the sizes after the transform that is applied."""
        after = sizes
        for number, (chain, columns) in enumerate(zip(self._chains, self._columns, strict=True)):
            sizes_then = chain.sizes_after(sizes, parameters[:, columns])
            after = np.where(parameters[:, :1] == number, sizes_then, after)
        return after

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Apply the chosen transform."""
        return self._apply_chain(int(parameters[0]), image, parameters)


class RandomOrder(_Nesting):
    """Applies some transforms in random order.

    Args:
        transforms: Transforms of fastload's, each possibly a Compose of such.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        super().__init__(_to_chains(transforms, "RandomOrder"), len(transforms))
        self.transforms = transforms

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the order, as numbers of transforms, then the parameters of each."""
        rows = np.zeros((len(sizes), self.width))
        count = len(self._chains)
        rows[:, :count] = draws.uniform(count).argsort(axis=1)
        self._follow(sizes, rows, draws)
        return rows

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """Return the sizes after all transforms."""
        return self._follow(sizes, parameters, None)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Apply all transforms in the order that was drawn."""
        for number in map(int, parameters[: len(self._chains)]):
            image = self._apply_chain(number, image, parameters)
        return image

    def _follow(self, sizes: Sizes, rows: Parameters, draws: Draws | None) -> Sizes:
        """Return the sizes after each image's order of transforms; with `draws`, fill in their parameters."""
        after = np.array(sizes)
        for turn in range(len(self._chains)):
            for number, (chain, columns) in enumerate(zip(self._chains, self._columns, strict=True)):
                which = np.flatnonzero(rows[:, turn] == number)
                if not which.size:
                    continue
                if draws is not None:
                    own = Draws(draws.at(number).keys[which], len(which))
                    rows[which, columns] = chain.draw(own, after[which])
                after[which] = chain.sizes_after(after[which], rows[which, columns])
        return after


def _is_list(transforms: object) -> bool:
    return isinstance(transforms, (list, tuple))


def _to_chains(transforms: Sequence[Transform] | Sequence[Mix], owner: str) -> list[Chain]:
    if not _is_list(transforms) or not transforms:
        raise OptionError(f"{owner} must be given a list of transforms, got {transforms!r}")
    return [Chain([transform], owner) for transform in transforms]


def _to_shares(count: int, p: list[float] | None) -> list[float]:
    """Return weights divided by their sum; raise OptionError unless there is a valid one for each."""
    weights = [1.0] * count if p is None else list(p)
    if len(weights) != count or not all(weight >= 0 for weight in weights) or not sum(weights):
        raise OptionError(f"p must be a weight for each of {count} transforms, got {p!r}")
    return [weight / sum(weights) for weight in weights]
