"""Notices of a training's optimizers and modules, from steps and from calls that are rare."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from fastload.doctor.findings import StepFacts
from fastload.system.patching import patched


class StepWatch:
    """Notices optimizers, DataParallel, and whether modules are in training mode."""

    def __init__(self) -> None:
        self.steps = 0
        self.is_training_mode = True  # as of a new module
        self.has_backward = False
        self._known = weakref.WeakSet[Optimizer]()
        self._devices, self._faster = set[str](), dict[str, None]()
        self._has_convolutions = False
        self._parallel = ""

    def watching(self) -> AbstractContextManager[None]:
        """Notice what happens in the block."""
        init, train = torch.nn.DataParallel.__init__, torch.nn.Module.train
        backward = torch.autograd.backward

        def noted_init(module: torch.nn.DataParallel[Any], *given: Any, **named: Any) -> None:
            init(module, *given, **named)
            self._parallel = type(module).__name__

        def noted_train(module: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
            self.is_training_mode = mode
            return train(module, mode)

        def noted_backward(*given: Any, **named: Any) -> None:
            self.has_backward = True
            backward(*given, **named)

        replaced: tuple[tuple[object, str, Callable[..., Any]], ...] = (
            (torch.nn.DataParallel, "__init__", noted_init),
            (torch.nn.Module, "train", noted_train),
            (torch.autograd, "backward", noted_backward),
        )
        return patched(*replaced)

    def note_step(self, optimizer: Optimizer, *_: object) -> None:
        """Record a step of an optimizer."""
        self.steps += 1
        if optimizer in self._known:
            return
        self._known.add(optimizer)
        for group in optimizer.param_groups:
            self._devices.update(weight.device.type for weight in group["params"])
            self._has_convolutions |= any(weight.ndim == 4 for weight in group["params"])
            name = next((name for name in ("fused", "foreach") if name in group), "")
            is_default = name == "foreach" and self._devices == {"cuda"}
            if name and not group[name] and not is_default:
                self._faster[f"{type(optimizer).__name__}(…, {name}=True)"] = None

    def facts(self) -> StepFacts:
        """Return the facts so far."""
        found = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else ""
        # GPUs before Ampere compute bfloat16 more slowly than float32.
        is_old = torch.cuda.is_available() and not torch.cuda.is_bf16_supported(including_emulation=False)
        return StepFacts(
            unused_device=found if self._devices == {"cpu"} else "",
            has_convolutions=self._has_convolutions,
            faster_optimizers=tuple(self._faster),
            threads=torch.get_num_threads(),
            half="float16" if is_old else "bfloat16",
            parallel=self._parallel,
        )
