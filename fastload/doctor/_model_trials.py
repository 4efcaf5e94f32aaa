"""Trials of the model on a copy, after the training: a larger batch, AMP."""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
import warnings
from collections.abc import Iterator
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
    """Keeps the outermost module of the first training step, and its tensors; the hook is then removed."""

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.inputs: tuple[Any, ...] = ()
        self.autocast: torch.dtype | None = None
        self.device: torch.device | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until it ends, or the model is found."""
        self._hook = torchs.register_module_forward_pre_hook(self._called)
        with warnings.catch_warnings():
            # A compiled model calls such a hook twice and warns of it: once is enough for this one.
            warnings.filterwarnings("ignore", message=".*when there are global hooks on modules")
            try:
                yield
            finally:
                self._hook.remove()

    def _called(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        # A loss function is a module too, but has nothing to learn.
        trained = next((value for value in module.parameters() if value.requires_grad), None)
        if self.model is not None or not module.training or not torch.is_grad_enabled() or trained is None:
            return
        self.model, self.device = module, trained.device
        with contextlib.suppress(Exception):  # a device without autocast
            if torch.is_autocast_enabled(trained.device.type):
                self.autocast = torch.get_autocast_dtype(trained.device.type)
        if inputs and all(isinstance(value, torch.Tensor) and value.ndim and len(value) for value in inputs):
            self.inputs = tuple(value.detach().clone() for value in inputs)
        if hasattr(self, "_hook"):
            self._hook.remove()


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
    for part in model.modules():
        is_compiled = getattr(part, "_compiled_call_impl", None) is not None
        if is_compiled or any(kind.__name__ in _BOUND for kind in type(part).__mro__):
            return ()
    doubled = tuple(torch.cat([value, value]) for value in watch.inputs)
    changes: dict[Any, tuple[tuple[Any, ...], torch.dtype | None]] = {
        "plain": (watch.inputs, watch.autocast),
        "batch": (doubled, watch.autocast),
    }
    if watch.autocast is None:
        changes["amp"] = watch.inputs, torch.bfloat16
    taken: dict[Any, list[float]] = {}
    ends_at = time.perf_counter() + _MOST_S
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for turn in range(_TURNS + 1):
            for change, (inputs, dtype) in list(changes.items()):
                if turn > 1 and time.perf_counter() > ends_at:
                    break
                try:
                    seconds = _step_s(copy.deepcopy(model), inputs, device, dtype)
                except Exception:
                    del changes[change]
                    continue
                if turn:  # The first one warms up.
                    taken.setdefault(change, []).append(seconds / len(inputs[0]))
    medians = {change: statistics.median(each) for change, each in taken.items()}
    plain_s = medians.pop("plain", None)
    return () if plain_s is None else tuple(ModelTrial(name, plain_s, each) for name, each in medians.items())


def _step_s(
    model: nn.Module, inputs: tuple[Any, ...], device: torch.device, dtype: torch.dtype | None
) -> float:
    """Return the seconds of a training step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    began = now()
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
        output = model(*inputs)
    sum(value.float().sum() for value in _tensors(output) if value.requires_grad).backward()  # type: ignore[union-attr]
    optimizer.step()
    return now() - began


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (dict, list, tuple)):
        for value in output.values() if isinstance(output, dict) else output:
            yield from _tensors(value)
