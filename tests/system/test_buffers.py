"""Memory is reused as soon as nobody holds it in any form, and not before."""

import gc
import os
import platform
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import torch

from fastload.system.buffers import reusable_array, reusable_tensor

SHAPE = (4, 64, 64, 3)
DTYPE = np.float32


def address(array):
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()


def fresh():
    return reusable_array(SHAPE, DTYPE)


@pytest.fixture(autouse=True)
def own_thread():
    """No blocks of other tests: each thread has its own, so the first ones here are new."""
    held = [reusable_array(SHAPE, DTYPE) for _ in range(9)]
    del held
    gc.collect()


HOLDERS = {
    "the array itself": lambda array: array,
    "a slice": lambda array: array[1:3],
    "one row": lambda array: array[3, 0, 0],
    "a reversed view": lambda array: array[:, ::-1],
    "a transposed view": lambda array: array.transpose(0, 3, 1, 2),
    "another dtype": lambda array: array.view(np.uint8),
    "a reshaped view": lambda array: array.reshape(-1),
    "a view of a view": lambda array: array[1:][1:][..., 0],
    "a field of a strided view": lambda array: np.lib.stride_tricks.as_strided(array, (2, 2), (4, 4)),
    "a memoryview": lambda array: memoryview(array),
    "a tensor": torch.from_numpy,
    "a slice of a tensor": lambda array: torch.from_numpy(array)[2:],
    "a permuted tensor": lambda array: torch.from_numpy(array).permute(0, 3, 1, 2),
    "a tensor of another dtype": lambda array: torch.from_numpy(array).view(torch.uint8),
    "a detached tensor": lambda array: torch.from_numpy(array).detach(),
    "the storage of a tensor": lambda array: torch.from_numpy(array).untyped_storage(),
    "an array of a tensor": lambda array: torch.from_numpy(array).numpy()[1],
    "a dict of arrays": lambda array: {"image": array[:2], "rest": [array[2:]]},
    "a closure": lambda array: lambda: array[0],
    "an array in a cycle": lambda array: (cycle := [array], cycle.append(cycle))[0],
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_is_not_reused_while_held_and_reused_afterwards(holder):
    array = fresh()
    array[:] = 7
    place = address(array)
    held = HOLDERS[holder](array)
    del array
    others = [fresh() for _ in range(3)]
    for other in others:
        assert address(other) != place
        other[:] = 9
    del others, other, held
    gc.collect()
    assert place in {address(each) for each in [fresh() for _ in range(8)]}


@pytest.mark.parametrize(
    "holder",
    [
        lambda tensor: tensor,
        lambda tensor: tensor[1:],
        lambda tensor: tensor.permute(0, 3, 1, 2),
        lambda tensor: tensor.numpy()[0],
        lambda tensor: tensor.untyped_storage(),
        lambda tensor: torch.utils.data.default_convert({"image": tensor[:1]}),
    ],
)
def test_tensors_hold_their_memory_too(holder):
    tensor = reusable_tensor(SHAPE, torch.float32)
    place = address(tensor)
    held = holder(tensor)
    del tensor
    assert address(reusable_tensor(SHAPE, torch.float32)) != place
    del held
    assert place in {address(each) for each in [reusable_tensor(SHAPE, torch.float32) for _ in range(8)]}


def test_contents_survive_any_number_of_later_arrays():
    held = [fresh() for _ in range(20)]
    for number, array in enumerate(held):
        array[:] = number
    for _ in range(20):
        fresh()[:] = -1
    assert all((array == number).all() for number, array in enumerate(held))


def test_memory_that_another_thread_holds_is_not_reused():
    is_held, may_end = threading.Event(), threading.Event()
    array = fresh()
    place = address(array)
    given = [array]
    del array

    def hold():
        view = given.pop()[1:]
        is_held.set()
        may_end.wait()
        del view

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    others = {address(each) for each in [fresh() for _ in range(8)]}
    may_end.set()
    thread.join()
    assert place not in others


def test_memory_outlives_the_thread_that_made_it():
    made = []
    thread = threading.Thread(target=lambda: made.append(fresh()))
    thread.start()
    thread.join()
    made[0][:] = 5
    others = [fresh() for _ in range(8)]
    for other in others:
        other[:] = 6
    assert (made[0] == 5).all()


def test_threads_do_not_share_memory():
    places = set()

    def run():
        places.add(address(fresh()))

    array = fresh()
    place = address(array)
    del array
    for _ in range(3):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert address(fresh()) == place or place not in places


def test_weak_references_do_not_hold_memory_and_die_with_the_array():
    array = fresh()
    place, reference = address(array), weakref.ref(array)
    assert reference() is array
    del array
    assert reference() is None
    assert place in {address(each) for each in [fresh() for _ in range(8)]}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_does_not_change_what_its_parent_holds():
    array = fresh()
    array[:] = 3
    child = os.fork()
    if not child:
        is_kept = (array == 3).all()
        for other in [fresh() for _ in range(9)]:
            other[:] = 4
        os._exit(0 if is_kept and (array == 3).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (array == 3).all()


def test_eight_blocks_are_kept_for_reuse():
    arrays = [fresh() for _ in range(12)]
    places = {address(array) for array in arrays}
    blocks = [weakref.ref(array.base) for array in arrays]
    del arrays
    assert sum(block() is not None for block in blocks) == 8
    again = [fresh() for _ in range(8)]
    assert len({address(array) for array in again} & places) == 8


def test_arrays_below_64_kib_are_plain_memory():
    assert reusable_array(((1 << 16) - 1,)).base is None
    assert reusable_array((1 << 16,)).base is not None


@pytest.mark.parametrize("shape", [(), (0,), (3,), (1 << 16,), (1 << 16, 3), (5, 7, 11)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_shape_and_dtype_are_as_requested(shape, dtype):
    array = reusable_array(shape, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    tensor = reusable_tensor(shape, getattr(torch, np.dtype(dtype).name))
    assert (tuple(tensor.shape), tensor.is_contiguous()) == (shape, True)
    assert tensor.numpy().dtype == dtype


def test_an_array_of_similar_size_reuses_the_memory():
    large = reusable_array((300, 300, 3))
    place = address(large)
    del large
    assert place in {address(each) for each in [reusable_array((310, 300, 3)) for _ in range(8)]}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide for themselves")
def test_freed_memory_of_an_image_is_kept_for_the_next_one():
    program = """
import resource
import numpy as np
from fastload.system.buffers import reusable_array
reusable_array((300, 300, 3))
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use_images(count):
    for _ in range(count):
        images = [np.empty(2 << 20, np.uint8) for _ in range(3)]
        for image in images:
            image[::4096] = 1
use_images(5)
before = faults()
use_images(20)
print((faults() - before) / 20)
"""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=plain, check=True
    )
    assert float(done.stdout) < 100  # of 1,536 pages
