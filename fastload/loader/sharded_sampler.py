"""ShardedSampler: one order for all ranks, which any number of ranks can continue."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Dataset, Sampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from fastload.errors import OptionError
from fastload.loader.sample_weights import SampleWeights
from fastload.loader.sharding import (
    EpochOrder,
    Permutation,
    Share,
    ShuffledWindows,
    checked_index,
    chosen_ranks,
    is_initialised,
    require_one_process,
    sizes_of_shards,
    torch_ranks,
)

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_ENDS = ("pad", "drop", "exact")
_VERSION = 1

# Samples whose positions are computed together: that takes some 0.2 µs for each, and 64 KB of memory.
_AT_ONCE = 4096


class ShardedSampler(DistributedSampler[int]):
    """Sampler of one rank's part of an epoch that all ranks share.

    The order is a function of (seed, epoch), computed where it is needed: memory does not grow with the
    dataset. An epoch that was saved on some number of ranks is continued on any other with the samples that
    were left. Each iteration is the next epoch, unless `set_epoch` says otherwise.

    Args:
        dataset: A map-style dataset.
        num_replicas, rank: The number of ranks that get different samples, and this process's rank. None:
            those of torch.distributed, which may be initialised later; one rank if it never is.
        shuffle: Use a random order.
        seed: Determines the order together with the epoch; the same on all ranks.
        drop_last: If `ends` is unset: `"drop"` instead of `"pad"`.
        ends: Treatment of samples that cannot be divided evenly: `"pad"`, some are repeated; `"drop"`,
            some are left out; `"exact"`, each is given once, so that ranks may have different numbers of
            batches (see `torch.distributed.algorithms.join.Join`).
        weights: A number for each rank, which gets samples in proportion to it: its batch size, for example.
            A loader's `batch_size` must be in the same proportion. None: all ranks get equally many.
        window: Shuffle the dataset's shards, and samples only within windows of this many shards: for disks
            and networks on which random reads are slow. None: all samples are shuffled together.
        sample_weights: A number for each sample, such as those of torch's WeightedRandomSampler: an epoch has
            as many samples as the dataset, each drawn independently, with these probabilities. `"balanced"`:
            each class of the dataset's `targets` is drawn equally often. None: each sample comes once.
        mesh: A one-dimensional torch DeviceMesh of the ranks that get different samples, instead of
            `num_replicas` and `rank`; of a mesh with more dimensions, its part: `mesh["dp"]`.

    Raises:
        OptionError: A parameter has an invalid value.

    Example:
        >>> sampler = ShardedSampler(range(10), num_replicas=2, rank=0, shuffle=False)
        >>> list(sampler)
        [0, 2, 4, 6, 8]
    """

    def __init__(
        self,
        dataset: Dataset[object],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        ends: str | None = None,
        weights: Sequence[float] | None = None,
        window: int | None = None,
        sample_weights: Sequence[float] | str | None = None,
        mesh: DeviceMesh | None = None,
    ) -> None:
        self.dataset = dataset
        self._follows_torch = num_replicas is None and rank is None and mesh is None
        self.shuffle = shuffle
        self.seed = checked_index("seed", seed)
        self.ends = ends or ("drop" if drop_last else "pad")
        self.drop_last = self.ends == "drop"
        self.window = window
        self._given_weights = weights
        self._set_ranks(*chosen_ranks(num_replicas, rank, mesh))
        self._check()
        self._sample_weights = None if sample_weights is None else self._draws_by(sample_weights)
        self.epoch = 0
        # Positions of the order at which the next iteration begins, and at which the latest one began.
        self._position = self._latest_position = 0
        # Samples of all ranks that a loader skips at the beginning of the next iteration.
        self.skipped = 0

    def _check(self) -> None:
        if not hasattr(self.dataset, "__len__"):
            raise OptionError(f"dataset must have a length, got {type(self.dataset).__name__}")
        if isinstance(self.dataset, WeightedRandomSampler):
            raise OptionError(
                "dataset must be what a loader loads, got a WeightedRandomSampler, whose weights would be "
                "ignored: ShardedSampler(dataset, sample_weights=weights) draws by them on all ranks"
            )
        if isinstance(self.dataset, Sampler):
            raise OptionError(
                f"dataset must be what a loader loads, got a {type(self.dataset).__name__}, whose order "
                "would be ignored: share out a Subset of the indices that it drew, the same on all ranks"
            )
        if self.ends not in _ENDS:
            raise OptionError(f"ends must be one of {', '.join(map(repr, _ENDS))}, got {self.ends!r}")
        if self.window is not None:
            if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
                raise OptionError(f"window must be a number of shards, at least 1, got {self.window!r}")
            if not self.shuffle:
                raise OptionError("window is a way to shuffle: give it with shuffle=True")
            self._shard_sizes()

    def _draws_by(self, weights: Sequence[float] | str) -> SampleWeights:
        if self.window is not None or not self.shuffle:
            raise OptionError("sample_weights draw from all samples: leave window and shuffle unset")
        return SampleWeights(weights, self.dataset)

    def _set_ranks(self, num_replicas: int, rank: int) -> None:
        weights = self._given_weights
        self.weights = (1.0,) * num_replicas if weights is None else _numbers(weights)
        if len(self.weights) != num_replicas:
            raise OptionError(
                f"weights must be one for each of {num_replicas} ranks, got {len(self.weights)}"
            )
        self.num_replicas, self.rank = num_replicas, rank
        self._known_share = Share.of(rank, self.weights)

    @property
    def ranks(self) -> tuple[int, int]:
        """The number of ranks, and this one's: those of torch.distributed, unless they were given."""
        self._follow_torch()
        return self.num_replicas, self.rank

    @property
    def _share(self) -> Share:
        self._follow_torch()
        return self._known_share

    def _follow_torch(self) -> None:
        """Take over the ranks of torch.distributed once that is initialised, unless ranks were given.

        Frameworks such as Lightning start the ranks only after they have received the loader.
        """
        if self._follows_torch and is_initialised():
            self._follows_torch = False  # these ranks stay when torch.distributed ends
            self._set_ranks(*torch_ranks())
        elif self._follows_torch:
            require_one_process()

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """The number of this rank's samples in an epoch."""
        return self._share.count(self.total_size)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """The number of all ranks' samples in an epoch."""
        return self._end(0)

    def __iter__(self) -> Iterator[int]:
        order, start = self._order(self.epoch), self._position
        self._latest_position, self._position, self.epoch = start + self.skipped, 0, self.epoch + 1
        self.skipped = 0
        samples = len(self.dataset)  # type: ignore[arg-type]
        count = self._share.count(self._end(start) - start)
        for first in range(0, count, _AT_ONCE):
            numbers = np.arange(first, min(first + _AT_ONCE, count))
            positions = start + self._share.positions(numbers)
            yield from order(positions % samples).tolist()

    def __len__(self) -> int:
        """Return `num_samples`, even if the next iteration continues an epoch."""
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration that of an epoch, or of the rest of it if its state was loaded.

        Raises:
            OptionError: It is not an integer of at least 0.
        """
        epoch = checked_index("epoch", epoch)
        if epoch != self.epoch:
            self.epoch, self._position = epoch, 0

    def loss_scale(self, batch_size: int, step: int = 0) -> float:
        """Return the factor for the mean loss of this rank's batch in a step of the latest iteration.

        DistributedDataParallel averages gradients over ranks. With this factor, the result is the gradient of
        the mean over all samples of the step, however many each rank has: it differs from 1 with `weights`,
        and in the last step with `ends="exact"`.

        Args:
            batch_size: The number of samples in this rank's batch.
            step: Batches of this rank since the iteration began, as `enumerate` counts them: from 0 even
                after a resume.

        Raises:
            OptionError: `batch_size` is not in proportion to the weights, or a value is not an integer.
        """
        step = checked_index("step", step)
        start, step_size = self._latest_position, self.step_size(batch_size)
        left = self._end(start) - start
        first, last = (min(number * step_size, left) for number in (step, step + 1))
        rank_samples = self._share.count(last) - self._share.count(first)
        return rank_samples * self.num_replicas / (last - first) if last > first else 0.0

    def step_size(self, batch_size: int) -> int:
        """Return the number of samples of all ranks in a step, given this rank's batch size.

        Raises:
            OptionError: `batch_size` is not in proportion to the weights.
        """
        rounds, rest = divmod(checked_index("batch_size", batch_size), self._share.size)
        if rest:
            raise OptionError(
                f"batch_size must be a multiple of {self._share.size} on rank {self.rank}, because the "
                f"weights are {self.weights}, got {batch_size}"
            )
        return rounds * self._share.round_size

    def state_dict(self) -> dict[str, object]:
        """Return where the next iteration begins; a DataLoader's state also has the progress within it."""
        return {"version": _VERSION, "epoch": self.epoch, "position": self._position, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration begin at a saved position, on any number of ranks.

        Raises:
            OptionError: The state is invalid, or of another order.
        """
        try:
            if state["version"] != _VERSION:
                raise OptionError(
                    f"the sampler's state must be of version {_VERSION}, got {state['version']!r}: load it "
                    "with the release of fastload that saved it"
                )
            for name, value in self._identity().items():
                if state[name] != value:
                    raise OptionError(
                        f"the state was saved by a ShardedSampler with {name}={state[name]!r}, and this one "
                        f"has {value!r}, which gives another order: create it with the saved value"
                    )
            epoch, position = operator.index(state["epoch"]), operator.index(state["position"])
            if min(epoch, position) < 0:
                raise TypeError("epoch and position are not negative")
            self.epoch, self._position = epoch, position
        except (KeyError, TypeError) as error:
            raise OptionError(
                f"the state must be what a ShardedSampler's state_dict() returned, got {state!r}"
            ) from error

    def _identity(self) -> dict[str, object]:
        """Return the values that determine the order together with the epoch."""
        samples = len(self.dataset)  # type: ignore[arg-type]
        sizes = None if self.window is None else np.asarray(self._shard_sizes(), np.int64)
        return {
            "samples": samples,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "window": self.window,
            "shards": None if sizes is None else zlib.crc32(sizes.tobytes()),
            "sample_weights": None if self._sample_weights is None else self._sample_weights.checksum,
        }

    def _end(self, start: int) -> int:
        """Return the position at which an iteration that begins at `start` ends."""
        samples, size = len(self.dataset), self._share.round_size  # type: ignore[arg-type]
        left = max(samples - start, 0)
        if self.ends == "exact":
            return start + left
        return start + (left // size if self.ends == "drop" else -(-left // size)) * size

    def _order(self, epoch: int) -> EpochOrder:
        samples = len(self.dataset)  # type: ignore[arg-type]
        if not self.shuffle or samples == 0:
            return lambda positions: positions
        if self._sample_weights is not None:
            return self._sample_weights.order(self.seed, epoch)
        if self.window is None:
            return Permutation(samples, (self.seed, epoch))
        return ShuffledWindows(self._shard_sizes(), self.window, self.seed, epoch)

    def _shard_sizes(self) -> Sequence[int]:
        return sizes_of_shards(self.dataset)


def _numbers(weights: object) -> tuple[float, ...]:
    """Return weights, which may be an array or a tensor, as Python's numbers."""
    try:
        found = np.asarray(weights)
    except (TypeError, ValueError, RuntimeError):  # ragged, on another device, with gradients
        found = np.empty(())
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise OptionError(
            f"weights must be positive numbers, one for each rank, got {weights!r}: give a list, or an array "
            "or a CPU tensor of one dimension"
        )
    return tuple(found.tolist())
