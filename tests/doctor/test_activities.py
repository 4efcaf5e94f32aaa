"""What a stack tells of what a thread is doing."""

import pytest

from fastload.doctor.activities import (
    Frame,
    loading_activity,
    shortened,
    step_activity,
    users_place,
    waiting_activity,
)

FETCH = Frame("/lib/torch/utils/data/_utils/fetch.py", "fetch", 52, "self.dataset[idx]", False)
COLLATES = FETCH._replace(text="self.collate_fn(data)")


def mine(text, function="Photos.__getitem__", file="/home/me/train.py"):
    return Frame(file, function, 41, text, True)


def lib(path, function, text=""):
    return Frame(f"/lib/{path}", function, 1, text, False)


LOADING = {
    "decode": [
        [mine("cv2.imdecode(data, 1)")],
        [
            mine("image.convert('RGB')"),
            lib("PIL/Image.py", "Image.convert"),
            lib("PIL/ImageFile.py", "ImageFile.load"),
        ],
        [mine("np.asarray(image)"), lib("PIL/Image.py", "Image.tobytes")],
        [mine("decode_jpeg(data)"), lib("simplejpeg/__init__.py", "decode_jpeg")],
        [mine("total += 1", "my_decoder.decode_frame")],
    ],
    "load": [[mine("cv2.imread(path)")], [mine("time.sleep(1)", "load_image")]],
    "read": [
        [mine("file.read()")],
        [mine("open(path, 'rb')")],
        [mine("Image.open(path)"), lib("PIL/Image.py", "open", "fp.read(16)")],
        [mine("self.file[index]"), lib("h5py/_hl/dataset.py", "Dataset.__getitem__")],
    ],
    "transform": [
        [mine("time.sleep(0.1)", "Augment.__call__")],
        [mine("x * 2")],
        [mine("self.transform(image)"), lib("torchvision/transforms/functional.py", "resize")],
        [mine("image.filter(blur)"), lib("PIL/Image.py", "Image.filter")],
    ],
}


@pytest.mark.parametrize(
    ("activity", "stack"), [(name, stack) for name, all_ in LOADING.items() for stack in all_]
)
def test_loading(activity, stack):
    assert loading_activity([FETCH, *stack]) == activity


def test_collating_is_told_by_who_calls():
    assert loading_activity([COLLATES, mine("torch.stack(images)", "my_collate")]) == "collate"


STEPS = {
    "work": [
        [mine("print(loss)", "<module>")],
        [mine("writer.add_scalar('loss', loss)", "main")],
        [mine("x = y", "log_metrics")],
        [mine("self.journal(loss)", "main"), lib("logging/__init__.py", "Logger.info")],
        [mine("torch.save(state, path)", "main"), lib("torch/serialization.py", "save")],
        [mine("time.sleep(1)", "SlowWriter.__call__")],
    ],
    "model": [
        [mine("time.sleep(1)", "main")],
        [mine("loss.item()", "main")],
        [mine("logits(x)", "Net.forward"), lib("torch/nn/functional.py", "log_softmax")],
        [mine("loss.backward()", "train_and_log")],
        [mine("x.to(torch.float32)", "main")],
    ],
}


@pytest.mark.parametrize(
    ("activity", "stack"), [(name, stack) for name, all_ in STEPS.items() for stack in all_]
)
def test_steps(activity, stack):
    assert step_activity(stack, has_device=False) == activity


def test_copies_are_those_to_a_device():
    assert step_activity([mine("images.to(device)", "main")], has_device=True) == "copy"


def test_waiting_for_workers_and_taking_batches_in_are_told_apart():
    assert waiting_activity(
        [lib("multiprocessing/connection.py", "wait"), lib("selectors.py", "select", "")]
    ) == ("receive")
    idle = Frame("/lib/python3.11/selectors.py", "select", 1, "self._selector.poll(timeout)", False)
    assert waiting_activity([idle]) == "idle"
    assert waiting_activity([lib("torch/multiprocessing/reductions.py", "rebuild_storage_fd")]) == "receive"


def test_the_place_is_the_innermost_line_of_the_users():
    stack = [
        mine("train()", "<module>"),
        mine("model(x)", "train"),
        lib("torch/nn/modules/module.py", "_call_impl"),
    ]
    assert users_place(stack) == "train.py:41 model(x)"
    assert users_place([]) == ""
    assert len(shortened("x" * 100)) == 60
