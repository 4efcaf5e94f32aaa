"""Changes of a run without an edit of the script: modules, optimizers, functions of torch, statements."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from fastload.system.patching import Replacement, patched
from fastload.system.script import Script
from fastload.system.statements import code_of, rewritten


@dataclass
class ChangedRun:
    """Changes by their place, and the names of those that found something to change.

    Modules that the script itself calls are changed before that and after the first batch.
    """

    on_module: list[Callable[[torch.nn.Module], None]] = field(default_factory=list)
    after_first_batch: list[Callable[[torch.nn.Module], None]] = field(default_factory=list)
    on_optimizer: list[Callable[[Optimizer], None]] = field(default_factory=list)
    patches: list[Replacement] = field(default_factory=list)
    statements: dict[str, dict[int, str]] = field(default_factory=dict)
    applied: set[str] = field(default_factory=set)
    modules: list[torch.nn.Module] = field(default_factory=list)

    @contextlib.contextmanager
    def applying(self) -> Iterator[None]:
        """Apply the changes to what the script does in the block."""
        seen = weakref.WeakSet[Optimizer]()

        def change(optimizer: Optimizer, *_: object) -> None:
            if optimizer not in seen:
                seen.add(optimizer)
                for each in self.on_optimizer:
                    each(optimizer)

        note = functools.partial(self.applied.add, "less often")
        self._ending = contextlib.ExitStack()
        hook = register_optimizer_step_pre_hook(change)
        try:
            with patched(*self.patches), rewritten(self.statements, note), self._ending:
                self._ending.enter_context(patched((torch.nn.Module, "__call__", self._called())))
                yield
        finally:
            hook.remove()

    def changed(self, script: Script) -> Script:
        """Return the script with its own statements changed."""
        lines = self.statements.get(script.code.co_filename)
        return replace(script, code=code_of(script.code.co_filename, lines)) if lines else script

    def finish_first_batch(self) -> bool:
        """Make the changes that come after the first batch, once a model has been called, or return False."""
        # A framework may fetch the next batch before the first step.
        if has_begun := any(next(module.parameters(), None) is not None for module in self.modules):
            self._ending.close()  # a compiler would trace what notices modules
            for module, change in itertools.product(self.modules, self.after_first_batch):
                change(module)
        return has_begun

    def _called(self) -> Callable[..., Any]:
        original: Callable[..., Any] = torch.nn.Module.__call__
        depth, known = 0, set[int]()

        def call(module: torch.nn.Module, *given: Any, **named: Any) -> Any:
            nonlocal depth
            if not depth and id(module) not in known:
                known.add(id(module))
                self.modules.append(module)
                for change in self.on_module:
                    change(module)
            depth += 1
            try:
                return original(module, *given, **named)
            finally:
                depth -= 1

        return call
