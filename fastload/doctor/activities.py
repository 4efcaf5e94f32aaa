"""What a thread is doing, told from its stack: pure functions of the names and the lines in it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from fastload.loader.diagnosis.measurements import Activity


class Frame(NamedTuple):
    """A frame of a stack.

    Attributes:
        file: The path of its code.
        function: The function's name, with its class where Python tells (3.11 and newer).
        line: The number of the line that runs.
        text: The call that runs; before Python 3.11, its whole line; "" where there is no source.
        is_users: Whether it is the user's own code, rather than a library's.
        called: What runs, without its arguments: `cv2.resize(`; "" where Python does not tell, and `text` may
            hold other calls besides.
    """

    file: str
    function: str
    line: int
    text: str
    is_users: bool
    called: str = ""

    @property
    def call(self) -> str:
        """What is known of what runs: `called`, else `text`."""
        return self.called or self.text


_T = TypeVar("_T")

_MOST_STACKS = 5000


def _of_stack(function: Callable[..., _T]) -> Callable[..., _T]:
    """Remembers what a function says of a stack: the same few hundred are seen again and again.

    By the frames' identity, because hashing them takes as long as the function; they are kept for that.
    """
    known: dict[tuple[int, ...], tuple[Sequence[Frame], _T]] = {}

    @functools.wraps(function)
    def once(stack: Sequence[Frame], **options: bool) -> _T:
        key = (*map(id, stack), *options.values())
        found = known.get(key)
        if found is None:
            if len(known) >= _MOST_STACKS:
                known.clear()
            found = known[key] = tuple(stack), function(stack, **options)
        return found[1]

    return once


def _calls(*names: str) -> re.Pattern[str]:
    return re.compile(rf"(^|[^\w])({'|'.join(names)})\s*\(")


# In the order in which they are asked. Each is a call in the text of the innermost frame of Python.
_LOADING_CALLS: tuple[tuple[Activity, re.Pattern[str]], ...] = (
    (
        "decode",
        _calls(
            r"cv2\.imdecode",
            r"decoder\.decode",
            r"\w*decode\w*",
            r"zlib\.decompress",
            r"np\.(as)?array",
            r"[\w.]*\.convert",
        ),
    ),
    (
        "load",
        _calls(r"cv2\.imread", r"imread", r"read_image", r"torch\.load", r"np\.load", r"torchaudio\.load"),
    ),
    (
        "read",
        _calls(
            *(r"open", r"os\.open", r"read", r"read_bytes", r"read_text", r"readinto", r"readline", r"pread"),
            *(r"\w+\.read\w*", r"[\w.]*fromfile", r"recv\w*", r"\w*txn\.get", r"os\.stat", r"get_object"),
        ),
    ),
)
# What many do to the pixels of OpenCV's decoders before anything else.
_SWAPPING = re.compile(r"cv2\.cvtColor\(.*\bCOLOR_BGR2RGB")
_READING_FILES = re.compile(
    r"/(fsspec|s3fs|gcsfs|urllib3?|requests|httpx|http|botocore|lmdb|socket\.py|ssl\.py)\b"
)
_LOADING_FILES = re.compile(
    r"/(h5py|zarr|numcodecs|imageio|tifffile|decord|torchcodec|av|rawpy|pydicom|soundfile|librosa|nibabel|skimage/io|monai/data"
    r"|monai/transforms/io)/"
)
_TRANSFORM_FILES = re.compile(
    r"/(torchvision/transforms|fastload/transforms|albumentations|albucore|kornia|imgaug|skimage"
    r"|monai/transforms|torchio|audiomentations|torchaudio/(transforms|functional))/"
)
_DECODING_FILES = re.compile(
    r"/(simplejpeg|turbojpeg\.py|fastload/images/(decode|region|jpeg|encodings|yuv)\.py)"
)
_PIL_DECODING = re.compile(
    r"\b(open|_open_core|preinit|_decompression_bomb_check|close|__exit__|_close_fp"
    r"|load|convert|draft|load_prepare|load_end|tobytes|__array_interface__|__array__)$"
)
_LOADING_FUNCTIONS: tuple[tuple[Activity, re.Pattern[str]], ...] = (
    ("decode", re.compile(r"(^|[._])decod\w*$|imdecode")),
    (
        "transform",
        re.compile(r"transform|augment|blur|crop|resize|normali[sz]e|flip|jitter|rotate", re.IGNORECASE),
    ),
    ("load", re.compile(r"(^|[._])(load|read|fetch|download|open)(_\w+)?$|_(loader|reader)$")),
)

_WORK_FILES = re.compile(
    r"/(logging/|tensorboard|tensorboardX|wandb|mlflow|neptune|comet_ml|clearml|aim/|tqdm/|rich/|loguru|csv\.py|json/"
    r"|matplotlib|seaborn|pandas|sklearn|torch/serialization\.py|pickle\.py|shutil\.py|subprocess\.py|imageio/"
    r"|urllib3?|requests|smtplib|h5py|torchmetrics|PIL/|skimage/)"
)
_WORK_CALLS = _calls(
    *(
        r"print",
        r"\w*(writer|logger|log|logging|wandb|run|mlflow)\.\w+",
        r"[\w.]*\.(write|writelines|writerow|flush)",
    ),
    *(
        r"os\.fsync",
        r"json\.dumps?",
        r"pickle\.dumps?",
        r"[\w.]*savefig",
        r"np\.save\w*",
        r"cv2\.\w+",
        r"[\w.]*\.save",
    ),
    *(r"[\w.]*\.(to_csv|add_scalars?|add_image|add_histogram|set_postfix|set_description)", r"open"),
)
# What is not written down, though it sounds so: logarithms, losses, random draws, recomputed blocks.
_MATHS = (
    r"(?!logs?_?((prob|probs|probabilit\w+|det|std|stddev|var|variance|mel|spec|normal|normalizer|scale|[pqz]\w?)"
    r"(_|$)|likelihood|softmax|sigmoid|sum_?exp|mean_?exp|add_?exp|abs_|pdf|pmf|cdf|density|posterior|prior|joint"
    r"|marginal|gaussian|odds|ratio|mel_?spec|spectr|sigma|cosh|1p))"
    r"(?!metrics?_(loss|learning|fn|function|space|tensor)|record_function)"
    r"(?!draw_(noise|samples?|latents?|z|eps|negatives?|timesteps?|random|normal|gaussian|prior|posterior|from))"
    r"(?!checkpoint_?(block|layer|segment|forward|sequential|wrapper|fn|func|module))"
)
_WORK_FUNCTIONS = re.compile(
    rf"(^|\.)_*{_MATHS}(logs?|logging|logger|write|save|plot|print|report|checkpoint|dump|flush|draw|record"
    r"|visuali[sz]e|summari[sz]e|metrics?|hist|histograms?|stats|statistics|monitor|dashboard)(_\w+)?$"
    r"|(Logger|Writer|Recorder|Checkpointer|Tracker|Monitor|Dashboard)\."
)
_FORWARD = re.compile(r"(^|\.)forward$")
_COPY_CALLS = _calls(r"[\w.\[\]]*\.(to|cuda)", r"[\w.]*_to_device", r"move_data_to_device", r"tree_map")
_IDLE_FILES = re.compile(r"/(selectors|threading|queue)\.py$|multiprocessing/(connection|popen_\w+)\.py$")
_IDLE_CALLS = _calls(r"[\w.]*\.(poll|select|wait|acquire|get)", r"wait", r"_poll")


@_of_stack
def loading_activity(stack: Sequence[Frame]) -> Activity:
    """What a process does that makes a batch.

    Args:
        stack: From torch's fetcher inwards: the innermost frame last.
    """
    if not stack:
        return "transform"
    if _is_collating(stack):
        return "collate"
    innermost = stack[-1]
    if _LOADING_FILES.search(innermost.file):
        return "load"
    for activity, pattern in () if _TRANSFORM_FILES.search(innermost.file) else _LOADING_CALLS:
        if pattern.search(innermost.call):
            return activity
    if _SWAPPING.search(innermost.text):
        return "decode"
    for frame in reversed(stack):
        found = _of_loading_frame(frame)
        if found is not None:
            return found
    return "transform"


def _is_collating(stack: Sequence[Frame]) -> bool:
    files = [frame.file for frame in stack]
    # A dataset that fills its batches is called in place of collating.
    if any("/fastload/datasets/" in file for file in files):
        return False
    return "collate_fn(" in stack[0].text or any(file.endswith("_utils/collate.py") for file in files)


def _of_loading_frame(frame: Frame) -> Activity | None:
    if "/PIL/" in frame.file:
        return "decode" if _PIL_DECODING.search(frame.function) or "Plugin" in frame.file else None
    if _DECODING_FILES.search(frame.file):
        return "decode"
    if _LOADING_FILES.search(frame.file):
        return "load"
    if _READING_FILES.search(frame.file) or "/fastload/shards/" in frame.file:
        return "read"
    if "torchvision/io/" in frame.file:
        return "decode"
    if frame.is_users:
        return next((kind for kind, pattern in _LOADING_FUNCTIONS if pattern.search(frame.function)), None)
    return "transform" if _TRANSFORM_FILES.search(frame.file) else None


@_of_stack
def step_activity(stack: Sequence[Frame], has_device: bool) -> Activity:
    """What the training's main thread does between two batches.

    Args:
        stack: From the script inwards: the innermost frame last.
        has_device: Whether there is a device to copy to.
    """
    if not stack:
        return "model"
    innermost = stack[-1]
    if _WORK_CALLS.search(innermost.call):
        return "work"
    if has_device and _COPY_CALLS.search(innermost.call):
        return "copy"
    return "model" if _outermost_work(stack) is None else "work"


@_of_stack
def work_site(stack: Sequence[Frame]) -> str:
    """The line of the user's own code that calls what is work, as `users_place` names it; "" for none.

    A look that falls between the end of that call and the next line, while what it made is freed, finds this
    line alone: it is known by the looks that found more.
    """
    return users_place(stack[: _outermost_work(stack) or 0])


def _outermost_work(stack: Sequence[Frame]) -> int | None:
    """The place of the first frame that logs, saves or draws."""
    # What a model calls is the model, whatever its name.
    is_inside_model = any(frame.is_users and _FORWARD.search(frame.function) for frame in stack)
    for place, frame in enumerate(stack):
        if _WORK_FILES.search(frame.file):
            return place
        if frame.is_users and not is_inside_model and _WORK_FUNCTIONS.search(frame.function):
            return place
    return None


def waiting_activity(stack: Sequence[Frame]) -> Activity:
    """What the main thread does while it asks workers for a batch: waits, or takes one in."""
    if not stack:
        return "idle"
    innermost = stack[-1]
    is_idle = _IDLE_FILES.search(innermost.file) and _IDLE_CALLS.search(innermost.call)
    return "idle" if is_idle else "receive"


@_of_stack
def users_place(stack: Sequence[Frame]) -> str:
    """The innermost line of the user's own code: `train.py:41 log(loss)`; "" where there is none.

    What it runs in a library of transforms, or to decode, is put behind: `train.py:41 self.transform(img) →
    Normalize`. Where a library's dataset does all of it, it is that, or the library's name.
    """
    inner: list[Frame] = []
    for frame in reversed(stack):
        if frame.is_users:
            name = frame.file.replace("\\", "/").rpartition("/")[2]
            place = f"{name}:{frame.line} {shortened(frame.text)}".rstrip()
            return " → ".join(filter(None, (place, _library_part(inner))))
        inner.append(frame)
    packages = (match[1] for match in (_PACKAGE.search(frame.file) for frame in inner) if match)
    return _library_part(inner) or next((name for name in packages if name != "torch"), "")


_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)/")

# Classes that call the transforms, and methods that each of these has.
_CALLERS = {"Compose", "Sequential", "SequentialTransforms", "RandomApply", "RandomChoice", "OneOf", "SomeOf"}
_BASES = re.compile(
    r"^(Base|Basic|ImageOnly|Dual|Geometric\w*|Intensity\w*|Map|_\w*)?(Transform|Augment\w*)?$"
)
_METHODS = re.compile(r"^_*(call|forward|transform|apply\w*|wrap\w*|inner|<\w+>)_*$")


def _library_part(inner: Sequence[Frame]) -> str:
    """What the frames of libraries, the innermost first, do to an image: `Normalize`, `resize`, `PIL`."""
    function = ""
    for frame in inner:
        if "/PIL/" in frame.file and _of_loading_frame(frame) == "decode":
            return "PIL"
        if _DECODING_FILES.search(frame.file) or "cv2.imdecode" in frame.text or "cv2.imread" in frame.text:
            return "OpenCV"
        if _TRANSFORM_FILES.search(frame.file):
            owner, _, method = frame.function.replace("<locals>.", "").rpartition(".")
            owner = owner.rpartition(".")[2]
            if owner and owner not in _CALLERS and not _BASES.search(owner):
                return owner
            if not owner and not function and not _METHODS.search(method):
                function = method
    return function


def shortened(text: str, most: int = 60) -> str:
    """A line of code, on one line and not too long."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
