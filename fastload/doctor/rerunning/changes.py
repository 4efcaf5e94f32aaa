"""Changes of a training step, each applied where the script calls torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from fastload.doctor.rerunning.changed_run import ChangedRun
from fastload.system.statements import averaging

# That of timm's and Ultralytics' averages of weights; any other takes as long.
_DECAY = 0.9999


def _around_forward(
    run: ChangedRun, name: str, around: Callable[..., Any], is_wanted: Callable[[torch.nn.Module], bool]
) -> None:
    """Replace `forward` of wanted modules by `around`, which gets the original and its arguments."""

    def change(module: torch.nn.Module) -> None:
        if is_wanted(module):
            run.applied.add(name)
            module.forward = functools.partial(around, module.forward)

    run.on_module.append(change)


def _has_weights(module: torch.nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _autocast(run: ChangedRun, value: str) -> None:
    def around(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        device = "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]
        with torch.autocast(device, getattr(torch, value)):
            found = original(*given, **named)
        return _mapped(torch.Tensor.float, found, torch.Tensor.is_floating_point)

    def is_wanted(module: torch.nn.Module) -> bool:
        device = next((each.device.type for each in module.parameters()), "")
        return bool(device) and not torch.is_autocast_enabled(device)

    _around_forward(run, "autocast", around, is_wanted)


def _mapped(
    change: Callable[[torch.Tensor], Any], value: Any, is_wanted: Callable[[torch.Tensor], bool]
) -> Any:
    """Return a value with a change to the tensors in it; classes of one's own are left as they are."""
    if isinstance(value, torch.Tensor):
        return change(value) if is_wanted(value) else value
    if type(value) in (tuple, list):
        return type(value)(_mapped(change, each, is_wanted) for each in value)
    if type(value) is dict:
        return {name: _mapped(change, each, is_wanted) for name, each in value.items()}
    return value


def _channels_last(run: ChangedRun, _: str) -> None:
    def to_last(images: torch.Tensor) -> torch.Tensor:
        return images.contiguous(memory_format=torch.channels_last)

    def around(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        changed = _mapped(to_last, (*given, named), lambda each: each.ndim == 4)
        return original(*changed[:-1], **changed[-1])

    def is_wanted(module: torch.nn.Module) -> bool:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return any(each.ndim == 4 for each in module.parameters())

    _around_forward(run, "channels_last", around, is_wanted)


def _no_grad(run: ChangedRun, _: str) -> None:
    def around(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        with torch.no_grad():
            return original(*given, **named)

    _around_forward(run, "no grad", around, lambda module: not module.training)


def _compile(run: ChangedRun, _: str) -> None:
    def change(module: torch.nn.Module) -> None:
        if _has_weights(module):
            run.applied.add("torch.compile")
            module.compile()

    run.after_first_batch.append(change)


def _optimizer(run: ChangedRun, _: str) -> None:
    def change(optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            name = next((each for each in ("fused", "foreach") if each in group), "")
            if name:
                run.applied.add("optimizer")
                group |= {"foreach": name == "foreach"} | ({"fused": True} if name == "fused" else {})

    run.on_optimizer.append(change)


def _threads(run: ChangedRun, value: str) -> None:
    torch.set_num_threads(int(value))
    run.applied.add("threads")
    run.patches.append((torch, "set_num_threads", lambda _: None))


def _batch(run: ChangedRun, value: str) -> None:
    factor, make, begin = int(value), DataLoader.__init__, Optimizer.__init__

    def made(
        loader: DataLoader[Any], dataset: Any, batch_size: int | None = 1, *given: Any, **named: Any
    ) -> None:
        # After batch_size come shuffle, sampler and batch_sampler.
        sampler = given[2] if len(given) > 2 else named.get("batch_sampler")
        if sampler is None and batch_size:
            batch_size *= factor
            run.applied.add("batch")
        elif sampler is not None and isinstance(getattr(sampler, "batch_size", None), int):
            sampler.batch_size *= factor
            run.applied.add("batch")
        make(loader, dataset, batch_size, *given, **named)

    def begun(optimizer: Optimizer, weights: Any, defaults: dict[str, Any]) -> None:
        # Linear for SGD: Goyal et al., arXiv:1706.02677; its root for Adam: Malladi et al., arXiv:2205.10287.
        rate = factor if "betas" not in defaults else factor**0.5
        weights = list(weights)
        for group in (defaults, *(each for each in weights if isinstance(each, dict))):
            if "lr" in group:
                group["lr"] = group["lr"] * rate
        begin(optimizer, weights, defaults)

    run.patches += [(DataLoader, "__init__", made), (Optimizer, "__init__", begun)]


def _average(run: ChangedRun, value: str) -> None:
    """Average weights as torch does, all at once; `value` is a list of files and lines, one a line."""
    averages: list[tuple[AveragedModel, torch.nn.Module]] = []
    _rewrite(run, value, "average")

    def average() -> None:
        run.applied.add("average")
        if not averages:
            module = next(filter(_has_weights, run.modules))
            averaged = get_ema_multi_avg_fn(_DECAY)  # type: ignore[no-untyped-call]
            averages.append((AveragedModel(module, multi_avg_fn=averaged), module))
        averages[0][0].update_parameters(averages[0][1])

    run.patches.append(averaging(average))


def _rewrite(run: ChangedRun, value: str, how: str = "less often") -> None:
    for source in value.splitlines():
        file, _, line = source.rpartition(":")
        run.statements.setdefault(file, {})[int(line)] = how


def _few_syncs(run: ChangedRun, _: str) -> None:
    """Let `.item()` return the number that it returned at first, which is there without waiting."""
    original, known = torch.Tensor.item, dict[tuple[Any, int], Any]()

    def item(tensor: torch.Tensor) -> Any:
        if tensor.device.type == "cpu":
            return original(tensor)
        caller = sys._getframe(1)
        key = caller.f_code, caller.f_lineno
        if key not in known:
            known[key] = original(tensor)
        run.applied.add("fewer syncs")
        return known[key]

    run.patches.append((torch.Tensor, "item", item))


def _precision(run: ChangedRun, value: str) -> None:
    torch.set_float32_matmul_precision(value)
    run.applied.add("matmul precision")


def _cudnn(run: ChangedRun, _: str) -> None:
    torch.backends.cudnn.benchmark = True
    run.applied.add("cudnn.benchmark")


CHANGES: dict[str, Callable[[ChangedRun, str], None]] = {
    "autocast": _autocast,
    "average": _average,
    "batch": _batch,
    "channels_last": _channels_last,
    "cudnn.benchmark": _cudnn,
    "fewer syncs": _few_syncs,
    "less often": _rewrite,
    "matmul precision": _precision,
    "no grad": _no_grad,
    "optimizer": _optimizer,
    "threads": _threads,
    "torch.compile": _compile,
}
"""A change's name, and the function that adds it, with a value, to a run."""
