"""Categories of work, derived from stacks."""

from dataclasses import replace

import pytest

from fastload.doctor.watching.categories import (
    Frame,
    loading_category,
    step_category,
    step_line,
    users_line,
)

FETCH = Frame(
    "/lib/torch/utils/data/_utils/fetch.py", "fetch", 52, "self.dataset[idx]", False, "self.dataset[idx]"
)
COLLATES = replace(FETCH, text="self.collate_fn(data)")


def mine(text, function="Photos.__getitem__", file="/home/me/train.py", called=""):
    return Frame(file, function, 41, text, True, called or text)


def lib(path, function, text=""):
    return Frame(f"/lib/{path}", function, 1, text, False, text)


LOADING = {
    "decode": [
        [mine("cv2.imdecode(data, 1)")],
        [
            mine("image.convert('RGB')"),
            lib("PIL/Image.py", "Image.convert"),
            lib("PIL/ImageFile.py", "ImageFile.load"),
        ],
        [mine("np.asarray(image)"), lib("PIL/Image.py", "Image.tobytes")],
        [mine("Image.open(path)"), lib("PIL/Image.py", "open", "im = factory(fp, filename)")],
        [mine("decode_jpeg(data)"), lib("simplejpeg/__init__.py", "decode_jpeg")],
        [mine("total += 1", "my_decoder.decode_frame")],
        [mine("Image.open(path).convert('RGB')", called="Image.open.convert(")],
        [mine("cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)", called="cv2.cvtColor(")],
    ],
    "load": [
        [mine("cv2.imread(path)")],
        [mine("time.sleep(1)", "load_image")],
        [mine("self.file[index]"), lib("h5py/_hl/dataset.py", "__getitem__", "self._fast_reader.read(args)")],
    ],
    "read": [
        [mine("file.read()")],
        [mine("open(path, 'rb')")],
        [mine("Image.open(path)"), lib("PIL/Image.py", "open", "fp.read(16)")],
    ],
    "transform": [
        [mine("time.sleep(0.1)", "Augment.__call__")],
        [mine("x * 2")],
        [mine("cv2.GaussianBlur(np.asarray(image), (9, 9), 3)", called="cv2.GaussianBlur(")],
        [mine("self.transform(image)"), lib("torchvision/transforms/functional.py", "resize")],
        [mine("image.filter(blur)"), lib("PIL/Image.py", "Image.filter")],
    ],
}


@pytest.mark.parametrize(
    ("category", "stack"), [(name, stack) for name, all_ in LOADING.items() for stack in all_]
)
def test_loading(category, stack):
    assert loading_category((FETCH, *stack)) == category


def test_collating_is_recognised_by_the_caller():
    assert loading_category((COLLATES, mine("torch.stack(images)", "my_collate"))) == "collate"


STEPS = {
    "work": [
        [mine("print(loss)", "<module>")],
        [mine("writer.add_scalar('loss', loss)", "main")],
        [mine("x = y", "log_metrics")],
        [mine("self.journal(loss)", "main"), lib("logging/__init__.py", "Logger.info")],
        [mine("torch.save(state, path)", "main"), lib("torch/serialization.py", "save")],
        [mine("time.sleep(1)", "SlowWriter.__call__")],
        [mine("Image.new('RGB', (64, 64)).save('x.png')", "bar")],
        [mine("canvas.resize((64, 64))", "bar"), lib("PIL/Image.py", "Image.resize")],
        [mine("cv2.putText(frame, text, (0, 0))", "bar")],
        [mine("weights.sort()", "Tracker.hist")],
    ],
    "model": [
        [mine("logits(x)", "Net.forward"), lib("torch/nn/functional.py", "log_softmax")],
        [mine("loss.backward()", "train_and_log"), lib("torch/autograd/__init__.py", "backward")],
        [
            mine("model(x)", "main"),
            lib("torch/nn/modules/module.py", "_call_impl"),
            mine("x * 2", "Net.head"),
        ],
        [mine("optimizer.step()", "main"), lib("torch/optim/adam.py", "Adam.step")],
        [
            mine("self.optimizer.step()"),
            lib("torch/optim/optimizer.py", "wrapper"),
            mine("p -= g", "Mine.step"),
        ],
        [mine("F.cross_entropy(x, y)", "main"), lib("torch/nn/functional.py", "cross_entropy")],
    ],
    "script": [
        [mine("time.sleep(1)", "main")],
        [mine("loss.item()", "main")],
        [mine("x.to(torch.float32)", "main")],
        [mine("ema.mul_(0.99).add_(weight, alpha=0.01)", "update")],
        [lib("lightning/loops/fit.py", "run")],
        [
            mine("trainer.fit(model)", "main"),
            lib("torch/optim/optimizer.py", "wrapper"),
            lib("lightning/loops/closure.py", "closure"),
            mine("images.float()", "Net.training_step"),
        ],
        [],
    ],
}


@pytest.mark.parametrize(
    ("category", "stack"), [(name, stack) for name, all_ in STEPS.items() for stack in all_]
)
def test_steps(category, stack):
    assert step_category(tuple(stack), has_device=False) == category


def test_with_a_device_the_calls_that_wait_for_it_are_the_models():
    assert step_category((mine("loss.item()", "main"),), has_device=True) == "model"
    assert step_category((mine("time.sleep(1)", "main"),), has_device=True) == "script"


def test_the_line_of_a_step_is_the_innermost_that_is_not_torchs():
    inside = lib("torch/nn/modules/module.py", "_call_impl")
    assert step_line((mine("model(x)"), inside)) == ("train.py:41 model(x)", "/home/me/train.py:41")
    update = replace(inside, file="/lib/site-packages/timm/ema.py", function="ModelEma.update")
    line, source = step_line((mine("trainer.fit(model)"), inside, update, inside))
    assert line == "train.py:41 trainer.fit(model) → ema.py:1 ModelEma.update"
    assert source == "/lib/site-packages/timm/ema.py:1"
    assert step_line((inside,)) == ("", "")


def test_copies_are_those_to_a_device():
    assert step_category((mine("images.to(device)", "main"),), has_device=True) == "copy"


def test_the_line_is_the_innermost_one_of_the_users_code():
    stack = [
        mine("train()", "<module>"),
        mine("model(x)", "train"),
        lib("torch/nn/modules/module.py", "_call_impl"),
    ]
    assert users_line(tuple(stack)) == "train.py:41 model(x)"
    assert users_line(()) == ""


@pytest.mark.parametrize(
    "name",
    [
        *(
            "log_prob",
            "Gaussian.log_prob",
            "log_likelihood",
            "log_softmax",
            "log_abs_det_jacobian",
            "log_var",
        ),
        *("metric_loss", "draw_noise", "checkpoint_block", "logsumexp", "log_px", "log_mel_spectrogram"),
    ],
)
def test_mathematics_that_sounds_like_writing_is_none(name):
    assert step_category((mine("x * y", name),), has_device=False) == "script"


@pytest.mark.parametrize(
    "name", ["log_summary", "log_scalars", "log_variables", "save_checkpoint", "draw_boxes"]
)
def test_functions_that_write_are_work(name):
    assert step_category((mine("x * y", name),), has_device=False) == "work"


def test_functions_called_by_a_model_are_the_model_whatever_their_name():
    stack = [mine("model(x)", "main"), mine("self.report(x)", "Net.forward"), mine("x * y", "Net.report")]
    assert step_category(tuple(stack), has_device=False) == "model"


LIBRARIES = [
    "albumentations/core/composition.py",
    "kornia/augmentation/base.py",
    "skimage/transform/_warps.py",
]


@pytest.mark.parametrize("path", [*LIBRARIES, "monai/transforms/compose.py", "imgaug/augmenters/meta.py"])
def test_a_library_of_transforms_in_a_function_that_loads_is_a_transform(path):
    stack = [FETCH, mine("self.transform(image)", "load_item"), lib(path, "apply", "np.asarray(image)")]
    assert loading_category(tuple(stack)) == "transform"


def test_reading_by_a_library_of_transforms_is_loading():
    stack = [FETCH, mine("self.transform(path)"), lib("monai/transforms/io/array.py", "LoadImage.__call__")]
    assert loading_category(tuple(stack)) == "load"


COMPOSED = [mine("self.transform(img)"), lib("torchvision/transforms/transforms.py", "Compose.__call__")]


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        (
            [
                lib("torchvision/transforms/transforms.py", "Normalize.forward"),
                lib("torchvision/transforms/functional.py", "normalize"),
            ],
            "Normalize",
        ),
        (
            [
                lib("torchvision/transforms/v2/_misc.py", "Normalize.transform"),
                lib("torchvision/transforms/v2/_transform.py", "Transform._call_kernel"),
            ],
            "Normalize",
        ),
        (
            [
                lib("torchvision/transforms/transforms.py", "ToTensor.__call__"),
                lib("PIL/ImageFile.py", "ImageFile.load"),
            ],
            "PIL",
        ),
        ([lib("mmcv/image/io.py", "imfrombytes", "cv2.imdecode(data, 1)")], "OpenCV"),
    ],
)
def test_the_line_names_the_part_of_the_library(frames, part):
    assert users_line((FETCH, *COMPOSED, *frames)) == f"train.py:41 self.transform(img) → {part}"
    assert users_line((FETCH, *frames)) == part


def test_a_user_transform_called_by_a_library_is_the_users_line():
    assert users_line((*COMPOSED, mine("x * 2", "Mine.__call__"))) == "train.py:41 x * 2"
