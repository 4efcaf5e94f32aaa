"""Trying the model in other ways, on a copy, after the training: larger batches, AMP, channels_last."""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torchs

from fastload.diagnosis.measurements import ModelTrial

_TURNS = 3
_MOST_STEP_S = 1.0
_MOST_S = 6.0


class ModelWatch:
    """Keeps hold of the model and of what it was last given.

    Only the outermost module of the first training step is kept; the hook that finds it is then taken away.

    Attributes:
        model: The outermost module that was called while it trained.
        inputs: What it was called with.
        uses_data_parallel: Whether it is in torch's DataParallel.
    """

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.inputs: tuple[Any, ...] = ()
        self.uses_data_parallel = False
        self._hook: Any = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches until it ends, or the model is found."""
        self._hook = torchs.register_module_forward_pre_hook(self._called)
        try:
            yield
        finally:
            self._unhook()

    def _called(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        # A loss function is a module too, but has nothing to learn.
        if self.model is not None or not module.training or not torch.is_grad_enabled():
            return
        if next(module.parameters(), None) is None or not any(map(_is_batch, inputs)):
            return
        self.uses_data_parallel = isinstance(module, nn.DataParallel)
        self.model, self.inputs = (
            module,
            tuple(value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs),
        )
        self._unhook()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def try_model(model: nn.Module | None, inputs: tuple[Any, ...]) -> tuple[ModelTrial, ...]:
    """Trains a copy of the model on the batch that it was given, as it is and in other ways, in turns.

    The copy's gradients and its optimizer (plain SGD) are its own; the random states are put back. What
    does not work, for want of memory or because the model does not allow it, is left out, and so are models
    whose step takes longer than a second.

    Args:
        model: The model; None: nothing is tried.
        inputs: What it is called with.
    """
    if model is None:
        return ()
    device = next(model.parameters()).device
    devices = [device] if device.type == "cuda" else []
    with contextlib.suppress(Exception), torch.random.fork_rng(devices):
        return _try(model, inputs, device)
    return ()


def _try(model: nn.Module, inputs: tuple[Any, ...], device: torch.device) -> tuple[ModelTrial, ...]:
    plain = _Stepper(copy.deepcopy(model), inputs, device)
    plain.step()
    if plain.timed() > _MOST_STEP_S:
        return ()
    ways: dict[str, _Stepper] = {}
    for change, make in _changes(model, inputs, device).items():
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
    model: nn.Module, inputs: tuple[Any, ...], device: torch.device
) -> dict[str, Callable[[], _Stepper]]:
    changes: dict[str, Callable[[], _Stepper]] = {
        "batch": lambda: _Stepper(copy.deepcopy(model), tuple(map(_doubled, inputs)), device),
        "amp": lambda: _Stepper(copy.deepcopy(model), inputs, device, uses_amp=True),
    }
    if any(isinstance(value, torch.Tensor) and value.ndim == 4 for value in inputs):
        changes["channels_last"] = lambda: _Stepper(
            copy.deepcopy(model).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
            tuple(map(_channels_last, inputs)),
            device,
        )
    return changes


class _Stepper:
    """A model's training step: forward, backward, SGD."""

    def __init__(
        self, model: nn.Module, inputs: tuple[Any, ...], device: torch.device, uses_amp: bool = False
    ) -> None:
        self.samples = next(len(value) for value in inputs if _is_batch(value))
        self._model = model
        self._inputs = inputs
        self._device = device
        self._uses_amp = uses_amp
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step(self) -> None:
        """Does one."""
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._uses_amp):
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
