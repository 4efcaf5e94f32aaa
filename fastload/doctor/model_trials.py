"""Trials of the model on a copy, after the training: a larger batch, AMP."""

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

from fastload.doctor.findings import ModelTrial

_TURNS = 3
_MOST_STEP_S = 1.0
_MOST_S = 6.0

# Classes of modules that cannot be tried on a copy: compiled ones, and those that talk to other processes.
_BOUND = frozenset(
    {"OptimizedModule", "FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine", "SyncBatchNorm"}
)


class ModelWatch:
    """Keeps the outermost module of the first training step, and its inputs; the hook is then removed.

    Attributes:
        inputs: Its positional arguments, if a batch is among them; else ().
        autocast: The type that it computes in; None without autocast.
        device: The device of its parameters; None for no model.
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
        """Watch until it ends, or the model is found."""
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
        with contextlib.suppress(Exception):
            if torch.is_autocast_enabled(trained.device.type):
                self.autocast = torch.get_autocast_dtype(trained.device.type)
        if any(map(_is_batch, inputs)):
            self.inputs = tuple(
                value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs
            )
        self._unhook()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def try_model(watch: ModelWatch, step_s: float) -> tuple[ModelTrial, ...]:
    """Train a copy of the model on its batch, as it is and with each change, in turns.

    The copy's gradients and its optimizer (plain SGD) are its own; random states are put back. Changes that
    fail are left out, and so are models whose step takes longer than a second.
    """
    model, device = watch.model, watch.device
    if model is None or device is None or not watch.inputs or step_s > _MOST_STEP_S:
        return ()
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        # A copy has nobody to exchange gradients with.
        model = model.module
    if any(_is_bound(part) for part in model.modules()):
        return ()
    with contextlib.suppress(Exception), torch.random.fork_rng([device] if device.type == "cuda" else []):
        return _try(model, watch.inputs, device, watch.autocast)
    return ()


def _is_bound(module: nn.Module) -> bool:
    """Return whether a module needs other processes or is compiled: its copy says nothing, or hangs."""
    is_compiled = getattr(module, "_compiled_call_impl", None) is not None
    return is_compiled or any(kind.__name__ in _BOUND for kind in type(module).__mro__)


def _try(
    model: nn.Module, inputs: tuple[Any, ...], device: torch.device, autocast: torch.dtype | None
) -> tuple[ModelTrial, ...]:
    doubled = tuple(torch.cat([value, value]) if _is_batch(value) else value for value in inputs)
    ways: dict[Any, tuple[tuple[Any, ...], torch.dtype | None]] = {
        "plain": (inputs, autocast),
        "batch": (doubled, autocast),
    }
    if autocast is None:
        ways["amp"] = inputs, torch.bfloat16
    steps: dict[Any, Callable[[], float]] = {}
    for change, (values, dtype) in ways.items():
        with contextlib.suppress(Exception):
            step = _stepper(copy.deepcopy(model), values, device, dtype)
            step()
            if step() * next(len(value) for value in values if _is_batch(value)) > _MOST_STEP_S:
                return ()
            steps[change] = step
    taken: dict[Any, list[float]] = {change: [] for change in steps}
    began = time.perf_counter()
    for _ in range(_TURNS):
        for change, step in steps.items():
            if not taken[change] or time.perf_counter() - began < _MOST_S:
                taken[change].append(step())
    seconds = {change: statistics.median(each) for change, each in taken.items()}
    plain_s = seconds.pop("plain")
    return tuple(ModelTrial(change, plain_s, changed_s) for change, changed_s in seconds.items())


def _stepper(
    model: nn.Module, inputs: tuple[Any, ...], device: torch.device, dtype: torch.dtype | None
) -> Callable[[], float]:
    """Return a function that trains for one step and returns the seconds of a sample."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    samples = next(len(value) for value in inputs if _is_batch(value))

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def step() -> float:
        began = now()
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            output = model(*inputs)
        total = sum(value.float().sum() for value in _tensors(output) if value.requires_grad)
        optimizer.zero_grad()
        if isinstance(total, torch.Tensor):
            total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return (now() - began) / samples

    return step


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (dict, list, tuple)):
        for value in output.values() if isinstance(output, dict) else output:
            yield from _tensors(value)


def _is_batch(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) > 0
