"""torch's private members are named in one module per subpackage, and the loader works without them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from torch.utils.data import dataloader

import fastload.loader
from fastload.loader import torch_private
from tests.commands import run_python

ROOM = Path(fastload.loader.__file__).parent
ROOMS = (ROOM, ROOM.parent / "doctor")
FILES = sorted(
    path
    for room in ROOMS
    for path in room.rglob("*.py")
    if path.name not in ("torch_private.py", "torch_calls.py")
)


def test_torch_has_every_member():
    assert torch_private.missing == []


def imported_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOM.parent)))
def test_private_members_of_torch_are_imported_from_one_module(path):
    for name in imported_names(ast.parse(path.read_text())):
        parts = name.split(".")
        assert parts[0] != "torch" or not any(part.startswith("_") for part in parts), name
        assert not name.startswith(("torch.multiprocessing.reductions", "torch.utils.data.dataloader")), name


def test_private_attributes_of_torchs_iterators_are_checked():
    kinds = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
    torchs = {name for kind in kinds for name in torch_private.names_in(kind) if name.startswith("_")}
    paths = list((ROOM / "iterators").glob("*.py"))
    assert paths
    for path in paths:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        used |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        assert used & torchs <= torch_private.MEMBERS | {"__init__", "__iter__", "__len__", "__name__"}


# Code that removes a member of torch before fastload is imported.
def renamed(name):
    return (
        f"source = inspect.getsource(module).replace('{name}', '_renamed')\n"
        "exec(compile(source, module.__file__, 'exec'), vars(module))\n"
        "torch.utils.data.DataLoader = module.DataLoader\n"
    )


LACKING = {
    "_rcvd_idx": renamed("_rcvd_idx"),
    "_try_put_index": renamed("_try_put_index"),
    "_dataset_fetcher": renamed("_dataset_fetcher"),
    "_MultiProcessingDataLoaderIter": (
        renamed("_MultiProcessingDataLoaderIter") + "del module._MultiProcessingDataLoaderIter\n"
    ),
    "_remove_worker_pids": "del torch._C._remove_worker_pids\n",
    "ExceptionWrapper.reraise": "del torch._utils.ExceptionWrapper.reraise\n",
}

PROGRAM = """
import inspect, sys, warnings
import torch
import torch.utils.data.dataloader as module
{lacking}
for name in [name for name in sys.modules if name.startswith("fastload")]:
    del sys.modules[name]  # which a forked program has imported already
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import fastload
    from fastload import DataLoader, OptionError
    fastload.DataLoader(range(3))
[warning] = [one for one in caught if issubclass(one.category, RuntimeWarning)]
assert "{name}" in str(warning.message), warning.message
assert torch.__version__ in str(warning.message)

def numbers(loader):
    return [batch.tolist() for batch in loader]

orders = []
two = {{"num_workers": 2}}
for options in ({{"num_workers": 0}}, two, {{}}, {{**two, "persistent_workers": True}}):
    loader = DataLoader(range(40), batch_size=4, shuffle=True, seed=3, **options)
    epochs = [numbers(loader), numbers(loader)]
    assert sorted(sum(epochs[0], [])) == list(range(40))
    assert epochs[0] != epochs[1]
    orders.append(epochs)
    assert loader.num_workers == options.get("num_workers", 0)
    assert loader.plan.num_workers.value == loader.num_workers
assert all(order == orders[0] for order in orders)
assert "{name}" in DataLoader(range(4)).plan.num_workers.reason

state = loader.state_dict()
assert "{name}" in state["missing"]
try:
    loader.load_state_dict(state)
except OptionError as error:
    assert "{name}" in str(error)
else:
    raise AssertionError("a state that holds nothing was loaded")
assert numbers(DataLoader([torch.ones(2)] * 3, cache="auto"))
"""


@pytest.mark.parametrize("name", LACKING)
def test_loader_uses_torchs_own_iterators_if_torch_lacks_a_member(name):
    code = PROGRAM.format(lacking=LACKING[name], name=name)
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
