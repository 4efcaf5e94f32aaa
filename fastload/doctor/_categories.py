"""Categories of work, told from a stack by tables of names: pure functions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from fastload.doctor.findings import Category


class Frame(NamedTuple):
    """A frame of a stack.

    `text` is the call that runs (before Python 3.11 its whole line; "" without source), and `called` the same
    without its arguments: `cv2.reformat_size(`; "" where Python does not tell.
    """

    file: str
    function: str
    line: int
    text: str
    is_users: bool
    called: str = ""

    @property
    def call(self) -> str:
        """`called`, else `text`."""
        return self.called or self.text


_T = TypeVar("_T")
_MOST_STACKS = 5000


def _cached_by_frames(function: Callable[..., _T]) -> Callable[..., _T]:
    """Cache by the frames' identity: hashing them takes as long as the function, and few stacks differ."""
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


def _calls(names: str) -> re.Pattern[str]:
    """Match a call of one of the names, which are patterns separated by spaces."""
    return re.compile(rf"(^|[^\w])({'|'.join(names.split())})\s*\(")


# Calls in the innermost frame, in the order in which they are tried.
_LOADING_CALLS: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("decode", _calls(r"decoder\.decode \w*decode\w* zlib\.decompress np\.(as)?array [\w.]*\.convert")),
    ("load", _calls(r"imread cv2\.imread read_image torch\.load np\.load torchaudio\.load")),
    (
        "read",
        _calls(
            r"open os\.open read read_bytes read_text readinto readline pread \w+\.read\w* [\w.]*fromfile "
            r"recv\w* "
            r"\w*txn\.get os\.stat get_object"
        ),
    ),
    # Many swap the channels that OpenCV's decoders give before anything else.
    ("decode", re.compile(r"cv2\.cvtColor\(.*\bCOLOR_BGR2RGB")),
)
_IMAGE_READERS = re.compile(
    r"/(h5py|zarr|numcodecs|imageio|tifffile|decord|torchcodec|av|rawpy|pydicom|soundfile|librosa|nibabel|skimage/io"
    r"|monai/data|monai/transforms/io)/"
)
_TRANSFORM_LIBRARIES = re.compile(
    r"/(torchvision/transforms|fastload/transforms|albumentations|albucore|kornia|imgaug|skimage"
    r"|monai/transforms|torchio|audiomentations|torchaudio/(transforms|functional))/"
)
_DECODERS = re.compile(
    r"/(simplejpeg|turbojpeg\.py|torchvision/io|fastload/images/(decode|region|jpeg|encodings|yuv)\.py)"
)
_PIL_DECODING = re.compile(
    r"\b(open|_open_core|preinit|_decompression_bomb_check|close|__exit__|_close_fp"
    r"|load|convert|draft|load_prepare|load_end|tobytes|__array_interface__|__array__)$"
)
# Files of libraries, from the innermost frame outwards.
_LOADING_FILES: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("decode", _DECODERS),
    ("load", _IMAGE_READERS),
    (
        "read",
        re.compile(
            r"/(fsspec|s3fs|gcsfs|urllib3?|requests|httpx|http|botocore|lmdb|socket\.py|ssl\.py)\b|/fastload/shards/"
        ),
    ),
    ("transform", _TRANSFORM_LIBRARIES),
)
# Names of the user's own functions.
_LOADING_FUNCTIONS: tuple[tuple[Category, re.Pattern[str]], ...] = (
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
    r"print open os\.fsync \w*(writer|logger|log|logging|wandb|run|mlflow)\.\w+ json\.dumps? pickle\.dumps? "
    r"np\.save\w* "
    r"cv2\.\w+ "
    r"[\w.]*\.(write|writelines|writerow|flush|save|savefig|to_csv|add_scalars?|add_image|add_histogram) "
    r"[\w.]*\.(set_postfix|set_description)"
)
# Mathematics whose names sound like logging: logarithms, losses, random draws, recomputed blocks.
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
_COPY_CALLS = _calls(r"[\w.\[\]]*\.(to|cuda) [\w.]*_to_device move_data_to_device tree_map")

# Kinds of work beside the model, by the line that does it.
_WORK_NAMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("checkpoints", re.compile(r"checkpoint|torch\.save|state_dict|save_model", re.IGNORECASE)),
    ("metrics", re.compile(r"metric|accuracy|confusion|sklearn", re.IGNORECASE)),
    ("drawing", re.compile(r"plot|draw|fig|image|imshow|visuali", re.IGNORECASE)),
)


@_cached_by_frames
def loading_category(stack: Sequence[Frame]) -> Category:
    """Return what a process that makes a batch does; the stack is from torch's fetcher inwards."""
    if not stack:
        return "transform"
    if _is_collating(stack):
        return "collate"
    innermost = stack[-1]
    if _IMAGE_READERS.search(innermost.file):
        return "load"
    for category, pattern in () if _TRANSFORM_LIBRARIES.search(innermost.file) else _LOADING_CALLS:
        text = innermost.text if pattern is _LOADING_CALLS[-1][1] else innermost.call
        if pattern.search(text):
            return category
    for frame in reversed(stack):
        found = _category_of_frame(frame)
        if found is not None:
            return found
    return "transform"


def _is_collating(stack: Sequence[Frame]) -> bool:
    # A dataset that fills its batches is called in place of collating.
    if any("/fastload/datasets/" in frame.file for frame in stack):
        return False
    return "collate_fn(" in stack[0].text or any(frame.file.endswith("_utils/collate.py") for frame in stack)


def _category_of_frame(frame: Frame) -> Category | None:
    if "/PIL/" in frame.file:
        return "decode" if _PIL_DECODING.search(frame.function) or "Plugin" in frame.file else None
    table, text = (_LOADING_FUNCTIONS, frame.function) if frame.is_users else (_LOADING_FILES, frame.file)
    return next((category for category, pattern in table if pattern.search(text)), None)


@_cached_by_frames
def step_category(stack: Sequence[Frame], has_device: bool) -> Category:
    """Return what the main thread does between two batches; the stack is from the script inwards."""
    if not stack:
        return "model"
    innermost = stack[-1]
    if _WORK_CALLS.search(innermost.call):
        return "work"
    if has_device and _COPY_CALLS.search(innermost.call):
        return "copy"
    return "model" if _outermost_work(stack) is None else "work"


@_cached_by_frames
def work_site(stack: Sequence[Frame]) -> str:
    """Return the user's line that calls work beside the model; "" for none."""
    return users_line(stack[: _outermost_work(stack) or 0])


def _outermost_work(stack: Sequence[Frame]) -> int | None:
    # What a model calls is the model, whatever its name.
    is_inside_model = any(frame.is_users and _FORWARD.search(frame.function) for frame in stack)
    for place, frame in enumerate(stack):
        if _WORK_FILES.search(frame.file):
            return place
        if frame.is_users and not is_inside_model and _WORK_FUNCTIONS.search(frame.function):
            return place
    return None


def work_name(place: str) -> str:
    """Return the noun for the work that a line does beside the model."""
    return next((name for name, pattern in _WORK_NAMES if pattern.search(place)), "logging")


_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)/")
# Classes that call the transforms, base classes, and methods that each of them has.
_CALLERS = {"Compose", "Sequential", "SequentialTransforms", "RandomApply", "RandomChoice", "OneOf", "SomeOf"}
_BASES = re.compile(
    r"^(Base|Basic|ImageOnly|Dual|Geometric\w*|Intensity\w*|Map|_\w*)?(Transform|Augment\w*)?$"
)
_METHODS = re.compile(r"^_*(call|forward|transform|apply\w*|wrap\w*|inner|<\w+>)_*$")


@_cached_by_frames
def users_line(stack: Sequence[Frame]) -> str:
    """Return the innermost line of the user's own code: `train.py:41 self.transform(img) → Normalize`.

    Behind the arrow is what it runs in a library of transforms or of decoding. Where a library's dataset does
    everything, only that part or the library's name is returned.
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


def _library_part(inner: Sequence[Frame]) -> str:
    function = ""
    for frame in inner:
        if "/PIL/" in frame.file and _category_of_frame(frame) == "decode":
            return "PIL"
        if _DECODERS.search(frame.file) or "cv2.imdecode" in frame.text or "cv2.imread" in frame.text:
            return "OpenCV"
        if _TRANSFORM_LIBRARIES.search(frame.file):
            owner, _, method = frame.function.replace("<locals>.", "").rpartition(".")
            owner = owner.rpartition(".")[2]
            if owner and owner not in _CALLERS and not _BASES.search(owner):
                return owner
            if not owner and not function and not _METHODS.search(method):
                function = method
    return function


def shortened(text: str, most: int = 60) -> str:
    """Return a piece of code on one line of at most `most` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
