"""RandomChoice and RandomOrder: one of some transforms, or all in an order of each image's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastload.errors import OptionError
from fastload.transforms.compose import Chain
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.mixing import Mix, OneMix
from fastload.transforms.transform import Parameters, Pixels, Transform


class _OfSeveral(Transform):
    """What both have in common: transforms, each of which may be a Compose.

    Args:
        transforms: Of fastload's.

    Raises:
        OptionError: There is none, or one is not fastload's.
    """

    def __init__(self, transforms: Sequence[Transform] | Sequence[Mix]) -> None:
        name = type(self).__name__
        if not _is_list(transforms) or not transforms:
            raise OptionError(f"{name} must be given a list of transforms, got {transforms!r}")
        self.transforms = transforms
        self._chains = [Chain([transform], name) for transform in transforms]
        widths = [chain.width for chain in self._chains]
        ends = np.cumsum(widths).tolist()
        self._places = [slice(end - width, end) for width, end in zip(widths, ends, strict=True)]

    @property
    def takes_any_dtype(self) -> bool:  # type: ignore[override]
        """Whether all of them do."""
        return all(chain.takes_any_dtype for chain in self._chains)

    def channels_after(self, channels: int) -> int:
        """As many, whatever is done to an image.

        Raises:
            OptionError: They would differ.
        """
        for chain in self._chains:
            chain.channels_after(channels)
        return channels


class RandomChoice(_OfSeveral):
    """Applies one of some transforms.

    Args:
        transforms: Of fastload's; each may be a Compose of such. Or all of them MixUp and CutMix: it is then
            called with a batch, as they are.
        p: How likely each is, as weights; None for all alike.

    Raises:
        OptionError: A parameter is none of these.
    """

    def __new__(  # type: ignore[misc]
        cls, transforms: Sequence[Transform] | Sequence[Mix] = (), p: list[float] | None = None
    ) -> RandomChoice | OneMix:
        """Makes a OneMix of MixUps and CutMixes, which work on batches."""
        mixes = [step for step in transforms if isinstance(step, Mix)] if _is_list(transforms) else []
        if mixes and len(mixes) == len(transforms):
            return OneMix(mixes, _shares(len(mixes), p))
        return super().__new__(cls)

    def __init__(self, transforms: Sequence[Transform] | Sequence[Mix], p: list[float] | None = None) -> None:
        super().__init__(transforms)
        self.p = _shares(len(transforms), p)
        self.width = 1 + sum(chain.width for chain in self._chains)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The number of what is applied, then the parameters of each."""
        bounds = np.cumsum(self.p)[:-1]
        chosen = np.searchsorted(bounds, draws.uniform(1)[:, 0], side="right")
        parts = [chain.draw(draws.at(place), sizes) for place, chain in enumerate(self._chains)]
        return np.concatenate((chosen[:, None], *parts), axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The sizes that what is applied makes."""
        after = sizes
        for number, (chain, place) in enumerate(zip(self._chains, self._places, strict=True)):
            sizes_then = chain.sizes_after(sizes, parameters[:, 1:][:, place])
            after = np.where(parameters[:, :1] == number, sizes_then, after)
        return after

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Applies it."""
        number = int(parameters[0])
        return self._chains[number].apply(image, parameters[1:][self._places[number]])


class RandomOrder(_OfSeveral):
    """Applies some transforms, for each image in another order.

    Args:
        transforms: Of fastload's; each may be a Compose of such.

    Raises:
        OptionError: There is none, or one is not fastload's.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        super().__init__(transforms)
        self.width = len(transforms) + sum(chain.width for chain in self._chains)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The order, as numbers of transforms, then the parameters of each."""
        count = len(self._chains)
        order = draws.uniform(count).argsort(axis=1)
        rows = np.zeros((len(sizes), self.width))
        rows[:, :count] = order
        self._follow(sizes, rows, draws)
        return rows

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The sizes after all."""
        return self._follow(sizes, parameters, None)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Applies all."""
        count = len(self._chains)
        for number in map(int, parameters[:count]):
            image = self._chains[number].apply(image, parameters[count:][self._places[number]])
        return image

    def _follow(self, sizes: Sizes, rows: Parameters, draws: Draws | None) -> Sizes:
        """Goes through each image's transforms; draws their parameters, where there are numbers to draw."""
        count = len(self._chains)
        after = np.array(sizes)
        for turn in range(count):
            for number, (chain, place) in enumerate(zip(self._chains, self._places, strict=True)):
                which = np.flatnonzero(rows[:, turn] == number)
                if not which.size:
                    continue
                columns = slice(count + place.start, count + place.stop)
                if draws is not None:
                    own = Draws(draws.at(number).keys[which], len(which))
                    rows[which, columns] = chain.draw(own, after[which])
                after[which] = chain.sizes_after(after[which], rows[which, columns])
        return after


def _is_list(transforms: object) -> bool:
    return isinstance(transforms, (list, tuple))


def _shares(count: int, p: list[float] | None) -> list[float]:
    """Weights, so that they make 1.

    Raises:
        OptionError: They are not so many, or one is negative, or all are 0.
    """
    weights = [1.0] * count if p is None else list(p)
    if len(weights) != count or not all(weight >= 0 for weight in weights) or not sum(weights):
        raise OptionError(f"p must be a weight for each of {count} transforms, got {p!r}")
    return [weight / sum(weights) for weight in weights]
