"""Classification of stack samples into kinds of work, by tables of file and function names."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fastload.doctor.findings import Category


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A stack frame; each is created once, so that stacks can be compared by identity.

    `text` is the source of the call that runs (before Python 3.11, of the complete line; "" without source),
    and `called` is the same without arguments, such as `cv2.resize(`, if these are known.
    """

    file: str
    function: str
    line: int
    text: str
    is_users: bool
    called: str


Stack = tuple[Frame, ...]
"""Frames, the innermost last."""

_cached = functools.lru_cache(maxsize=5000)


def _calls(names: str) -> re.Pattern[str]:
    """Match a call of one of the names, which are patterns separated by spaces."""
    return re.compile(rf"(^|[^\w])({'|'.join(names.split())})\s*\(")


_READS = r"read read_bytes read_text readinto readline pread \w+\.read\w*"
# Calls in the innermost frame, in the order in which they are tried.
_LOADING_CALLS: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("decode", _calls(r"decoder\.decode \w*decode\w* zlib\.decompress np\.(as)?array [\w.]*\.convert")),
    ("load", _calls(r"imread cv2\.imread read_image torch\.load np\.load torchaudio\.load")),
    ("read", _calls(rf"open os\.open {_READS} [\w.]*fromfile recv\w* \w*txn\.get os\.stat get_object")),
)
# With OpenCV, swapping the channels is a part of decoding.
_CHANNEL_SWAP = re.compile(r"cv2\.cvtColor\(.*\bCOLOR_BGR2RGB")
_IMAGE_READERS = re.compile(
    r"/(h5py|zarr|imageio|tifffile|torchcodec|av|pydicom|soundfile|nibabel|skimage/io|monai/(data|transforms/io))/"
)
_TRANSFORM_LIBRARIES = re.compile(
    r"/(torchvision/transforms|fastload/transforms|albumentations|kornia|imgaug|skimage|monai/transforms)/"
)
_DECODERS = re.compile(
    r"/(simplejpeg|turbojpeg\.py|torchvision/io|fastload/images/(decode|region|jpeg|encodings)\.py)"
)
_STORAGE = re.compile(
    r"/(fsspec|s3fs|gcsfs|urllib3?|requests|httpx|http|botocore|lmdb|socket\.py|ssl\.py)\b|/fastload/shards/"
)
_PIL_DECODING = re.compile(
    r"\b(open|_open_core|preinit|_decompression_bomb_check|close|__exit__|_close_fp"
    r"|load|convert|draft|load_prepare|load_end|tobytes|__array_interface__|__array__)$"
)
# Files of libraries.
_LOADING_FILES: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("decode", _DECODERS),
    ("load", _IMAGE_READERS),
    ("read", _STORAGE),
    ("transform", _TRANSFORM_LIBRARIES),
)
# Names of functions in the user's code.
_LOADING_FUNCTIONS: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("decode", re.compile(r"(^|[._])decod\w*$|imdecode")),
    (
        "transform",
        re.compile(r"transform|augment|blur|crop|resize|normali[sz]e|flip|jitter|rotate", re.IGNORECASE),
    ),
    ("load", re.compile(r"(^|[._])(load|read|fetch|download|open)(_\w+)?$|_(loader|reader)$")),
)

_WORK_FILES = re.compile(
    r"/(logging/|tensorboard|wandb|mlflow|comet_ml|clearml|tqdm/|rich/|loguru|csv\.py|json/|matplotlib|seaborn|pandas"
    r"|sklearn|torch/serialization\.py|pickle\.py|shutil\.py|subprocess\.py|imageio/|urllib3?|requests|h5py"
    r"|torchmetrics|PIL/|skimage/)"
)
_WORK_CALLS = _calls(
    r"print open os\.fsync \w*(writer|logger|log|logging|wandb|run|mlflow)\.\w+ json\.dumps? pickle\.dumps? "
    r"np\.save\w* cv2\.\w+ "
    r"[\w.]*\.(write|writelines|writerow|flush|save|savefig|to_csv|add_scalars?|add_image|add_histogram) "
    r"[\w.]*\.(set_postfix|set_description)"
)
# Mathematics whose names sound like logging: logarithms, losses, random draws, recomputed blocks.
_MATHS = (
    r"(?!logs?_?(prob|det|std|var(?!iables)|mel|spec|norm|scale|[pqz]\w?(_|$)|likelihood|softmax|sigmoid|sum_?exp"
    r"|mean_?exp|abs_|density|posterior|prior|odds|ratio|1p)"
    r"|metrics?_(loss|learning|fn)|draw_(noise|samples?|latents?)|checkpoint_?(block|layer|segment|forward))"
)
_WORK_FUNCTIONS = re.compile(
    rf"(^|\.)_*{_MATHS}(logs?|logging|logger|write|save|plot|print|report|checkpoint|dump|flush|draw|record"
    r"|visuali[sz]e|summari[sz]e|metrics?|hist|histograms?|stats|statistics|monitor|dashboard)(_\w+)?$"
    r"|(Logger|Writer|Recorder|Checkpointer|Tracker|Monitor|Dashboard)\."
)
_FORWARD = re.compile(r"(^|\.)forward$")
_STEP = re.compile(r"(^|\.)step$")
# Modules and losses, the backward pass, optimizers, and compiled models.
_MODEL_FILES = re.compile(r"/torch/(nn|optim|autograd|amp|_dynamo|_inductor|_functorch)/|/torchinductor_")
# With a device, these wait for the work that the model has queued there.
_DEVICE_WAITS = re.compile(r"\.(item|cpu|tolist|numpy|nonzero|synchronize)\s*\(")
_COLLECTIVES = re.compile(r"/torch/distributed/(distributed_c10d|_functional_collectives)\.py$")
_COPY_CALLS = _calls(r"[\w.\[\]]*\.(to|cuda) [\w.]*_to_device move_data_to_device tree_map")


@_cached
def loading_category(stack: Stack) -> Category:
    """Return the kind of work of a process that makes a batch; the stack begins at torch's fetcher."""
    if not stack:
        return "transform"
    is_collating = "collate_fn(" in stack[0].text or any("_utils/collate.py" in frame.file for frame in stack)
    # A fastload dataset loads whole batches within collate_fn.
    if is_collating and not any("/fastload/datasets/" in frame.file for frame in stack):
        return "collate"
    innermost = stack[-1]
    if _IMAGE_READERS.search(innermost.file):
        return "load"
    if not _TRANSFORM_LIBRARIES.search(innermost.file):
        for category, pattern in _LOADING_CALLS:
            if pattern.search(innermost.called):
                return category
        if _CHANNEL_SWAP.search(innermost.text):
            return "decode"
    found = (_category_of_frame(frame) for frame in reversed(stack))
    return next((category for category in found if category is not None), "transform")


def _category_of_frame(frame: Frame) -> Category | None:
    if "/PIL/" in frame.file:
        return "decode" if _PIL_DECODING.search(frame.function) or "Plugin" in frame.file else None
    table, text = (_LOADING_FUNCTIONS, frame.function) if frame.is_users else (_LOADING_FILES, frame.file)
    return next((category for category, pattern in table if pattern.search(text)), None)


@_cached
def step_category(stack: Stack, has_device: bool) -> Category:
    """Return the kind of work of the main thread between two batches; the stack begins at the script."""
    if not stack:
        return "script"
    innermost = stack[-1]
    if _COLLECTIVES.search(innermost.file):
        return "sync"
    if _WORK_CALLS.search(innermost.called):
        return "work"
    if has_device and _COPY_CALLS.search(innermost.called):
        return "copy"
    # Functions that a model calls belong to the model, whatever their names.
    is_inside_model = has_closure = False
    for frame in stack:
        if _WORK_FILES.search(frame.file):
            return "work"
        if not frame.is_users:
            has_closure = has_closure or "/torch/optim/" in frame.file
            is_inside_model = is_inside_model or bool(_MODEL_FILES.search(frame.file))
        elif _FORWARD.search(frame.function):
            is_inside_model = True
        elif has_closure and not _STEP.search(frame.function):
            # Lightning runs the whole training step within that of the optimizer.
            is_inside_model = has_closure = False
        if frame.is_users and not is_inside_model and _WORK_FUNCTIONS.search(frame.function):
            return "work"
    if is_inside_model or (has_device and _DEVICE_WAITS.search(innermost.called)):
        return "model"
    return "script"


# Containers and base classes of transforms, which name no transform themselves.
_CONTAINERS = re.compile(r"^(_\w*|Compose|Sequential\w*|Random(Apply|Choice)|OneOf|SomeOf|\w*Transform)$")

_MOST_SHOWN = 60
_OTHER_LIBRARY = re.compile(r"/(site|dist)-packages/(?!torch/)")


@_cached
def step_line(stack: Stack) -> tuple[str, str]:
    """Return the user's line that the main thread runs, as text, and the file and line of the code itself.

    The text names both where a library calls torch by itself, as the loop of a framework does:
    `train.py:9 trainer.fit(model) → ema.py:41 ModelEMA.update`.
    """
    own = [frame for frame in stack if frame.is_users or _OTHER_LIBRARY.search(frame.file)]
    if not own:
        return "", ""
    line, innermost = users_line(stack[: stack.index(own[-1]) + 1]), own[-1]
    if not innermost.is_users:
        name = f"{os.path.basename(innermost.file)}:{innermost.line} {innermost.function}"
        line = f"{line} → {name}" if line else name
    return line, f"{innermost.file}:{innermost.line}"


@_cached
def users_line(stack: Stack) -> str:
    """Return the innermost line of the user's own code: `train.py:41 self.transform(img) → Normalize`.

    After the arrow comes the transform or the decoder that it calls, which stands alone if the stack has no
    line of the user's code, as in a library's dataset.
    """
    index = max((number for number, frame in enumerate(stack) if frame.is_users), default=-1)
    part = _library_part(stack[index + 1 :])
    if index < 0:
        return part
    frame = stack[index]
    line = f"{os.path.basename(frame.file)}:{frame.line} {frame.text[:_MOST_SHOWN]}".rstrip()
    return f"{line} → {part}" if part else line


def _library_part(inner: Sequence[Frame]) -> str:
    """Return the decoder, or else the transform, that library frames belong to; "" if unknown."""
    for frame in inner:
        if "/PIL/" in frame.file and _category_of_frame(frame) == "decode":
            return "PIL"
        if _DECODERS.search(frame.file) or "cv2.imdecode" in frame.text or "cv2.imread" in frame.text:
            return "OpenCV"
    for frame in reversed(inner):
        owner = frame.function.rpartition(".")[0].rpartition(".")[2]
        if owner and _TRANSFORM_LIBRARIES.search(frame.file) and not _CONTAINERS.search(owner):
            return owner
    return ""
