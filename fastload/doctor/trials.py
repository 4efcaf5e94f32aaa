"""Trying the model in other ways, on a copy, after the training: larger batches, AMP, channels_last."""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torchs

from fastload.loader.diagnosis.measurements import ModelTrial

_TURNS = 3
_MOST_STEP_S = 1.0
_MOST_S = 6.0

# Classes of modules that cannot be tried on a copy: compiled ones, and those that talk to other processes.
_BOUND = frozenset(
    {"OptimizedModule", "FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine", "SyncBatchNorm"}
)


class ModelWatch:
    """Keeps hold of the model and of what it was last given.

    Only the outermost module of the first training step is kept; the hook that finds it is then taken away.

    Attributes:
        model: The outermost module that was called while it trained.
        inputs: What it was called with, if that begins with a batch: () where it got a dict, a list, or
            keywords alone.
        autocast: The type that it was called to compute in; None without autocast.
        device: Where its parameters are; None for no model.
        uses_data_parallel: Whether it is in torch's DataParallel.
    """

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.inputs: tuple[Any, ...] = ()
        self.autocast: torch.dtype | None = None
        self.device: torch.device | None = None
        self.uses_data_parallel = False
        self._hook: Any = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches until it ends, or the model is found."""
        self._hook = torchs.register_module_forward_pre_hook(self._called)
        try:
            with warnings.catch_warnings():
                # A compiled model calls such a hook twice, which it warns of: once is enough for this one.
                warnings.filterwarnings("ignore", message=".*when there are global hooks on modules")
                yield
        finally:
            self._unhook()

    def _called(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self.model is not None or not module.training or not torch.is_grad_enabled():
            return
        # A loss function is a module too, but has nothing to learn.
        trained = next((value for value in module.parameters() if value.requires_grad), None)
        if trained is None:
            return
        self.model, self.device = module, trained.device
        self.uses_data_parallel = isinstance(module, nn.DataParallel)
        self.autocast = _autocast(trained.device)
        if any(map(_is_batch, inputs)):
            self.inputs = tuple(
                value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs
            )
        self._unhook()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def _autocast(device: torch.device) -> torch.dtype | None:
    """The type that operations are cast to on a device now; None where they are not."""
    with contextlib.suppress(Exception):
        if torch.is_autocast_enabled(device.type):
            return torch.get_autocast_dtype(device.type)
    return None


def try_model(watch: ModelWatch, step_s: float) -> tuple[ModelTrial, ...]:
    """Trains a copy of the model on the batch that it was given, as it is and in other ways, in turns.

    The copy's gradients and its optimizer (plain SGD) are its own; the random states are put back. What
    does not work, for want of memory or because the model does not allow it, is left out, and so are models
    whose step takes longer than a second.

    Args:
        watch: Has the model, and what it was called with.
        step_s: What a step of the training took, in seconds.
    """
    if watch.model is None or watch.device is None or not watch.inputs or step_s > _MOST_STEP_S:
        return ()
    model = watch.model
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        # A copy has nobody to exchange gradients with.
        model = model.module
    if any(_is_bound(part) for part in model.modules()):
        return ()
    devices = [watch.device] if watch.device.type == "cuda" else []
    with contextlib.suppress(Exception), torch.random.fork_rng(devices):
        return _try(model, watch.inputs, watch.device, watch.autocast)
    return ()


def _is_bound(module: nn.Module) -> bool:
    """Whether a module needs other processes, or is compiled: a copy of it says nothing, or never ends."""
    is_compiled = getattr(module, "_compiled_call_impl", None) is not None
    return is_compiled or any(kind.__name__ in _BOUND for kind in type(module).__mro__)


def _try(
    model: nn.Module, inputs: tuple[Any, ...], device: torch.device, autocast: torch.dtype | None
) -> tuple[ModelTrial, ...]:
    plain = _Stepper(copy.deepcopy(model), inputs, device, autocast)
    plain.step()
    if plain.timed() > _MOST_STEP_S:
        return ()
    ways: dict[str, _Stepper] = {}
    for change, make in _changes(model, inputs, device, autocast).items():
        with contextlib.suppress(Exception):
            stepper = make()
            stepper.step()
            stepper.step()
            ways[change] = stepper
    taken: dict[str, list[float]] = {name: [] for name in ("plain", *ways)}
    began = time.perf_counter()
    for _ in range(_TURNS):
        for name, stepper in {"plain": plain, **ways}.items():
            if len(taken[name]) == 0 or time.perf_counter() - began < _MOST_S:
                taken[name].append(stepper.timed() / stepper.samples)
    seconds = {name: statistics.median(each) for name, each in taken.items()}
    return tuple(
        ModelTrial(change, seconds["plain"], seconds[change])  # type: ignore[arg-type]
        for change in ways
    )


def _changes(
    model: nn.Module, inputs: tuple[Any, ...], device: torch.device, autocast: torch.dtype | None
) -> dict[str, Callable[[], _Stepper]]:
    changes: dict[str, Callable[[], _Stepper]] = {
        "batch": lambda: _Stepper(copy.deepcopy(model), tuple(map(_doubled, inputs)), device, autocast),
    }
    if autocast is None:
        changes["amp"] = lambda: _Stepper(copy.deepcopy(model), inputs, device, torch.bfloat16)
    if any(isinstance(value, torch.Tensor) and value.ndim == 4 for value in inputs):
        changes["channels_last"] = lambda: _Stepper(
            copy.deepcopy(model).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
            tuple(map(_channels_last, inputs)),
            device,
            autocast,
        )
    return changes


class _Stepper:
    """A model's training step: forward, backward, SGD."""

    def __init__(
        self, model: nn.Module, inputs: tuple[Any, ...], device: torch.device, autocast: torch.dtype | None
    ) -> None:
        self.samples = next(len(value) for value in inputs if _is_batch(value))
        self._model = model
        self._inputs = inputs
        self._device = device
        self._autocast = autocast
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step(self) -> None:
        """Does one."""
        is_on = self._autocast is not None
        with torch.autocast(self._device.type, dtype=self._autocast, enabled=is_on):
            output = self._model(*self._inputs)
        total = sum(value.float().sum() for value in _tensors(output) if value.requires_grad)
        self._optimizer.zero_grad()
        if isinstance(total, torch.Tensor):
            total.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def timed(self) -> float:
        """Does one, and returns the seconds that it took."""
        self._synchronize()
        began = time.perf_counter()
        self.step()
        self._synchronize()
        return time.perf_counter() - began

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors(value)


def _is_batch(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) > 0


def _doubled(value: Any) -> Any:
    return torch.cat([value, value]) if _is_batch(value) else value


def _channels_last(value: Any) -> Any:
    is_image = isinstance(value, torch.Tensor) and value.ndim == 4
    return value.contiguous(memory_format=torch.channels_last) if is_image else value
