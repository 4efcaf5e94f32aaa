"""Constructed training runs whose true cause is known, and the arguments that apply the doctor's fixes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

TRAIN = Path(__file__).parent / "train.py"


@dataclass(frozen=True)
class Situation:
    """A training run and the true limit of its speed.

    Attributes:
        verdict: The true verdict.
        arguments: Those of train.py; `{photos}` and others are folders made by `make_folders`.
        place: The machine that it needs: `plain`, `latency` or `bandwidth` (a slow disk), `quota`, `shm`.
        measures: The time that a fix changes: `steady_s`, a sample's time once it runs, or `whole_s`.
        limit: A word that the limits must contain.
        seconds: The time that the doctor watches.
        is_short: True if 'make test' runs it; 'make soak' runs all.
    """

    name: str
    verdict: str
    arguments: str
    place: str = "plain"
    measures: str = "steady_s"
    limit: str = ""
    seconds: float = 1.2
    is_short: bool = False


SITUATIONS = [
    Situation("decoding with PIL, no workers", "decoding", "--data {photos}", is_short=True),
    Situation("decoding with OpenCV, no workers", "decoding", "--data {photos} --decoder cv2"),
    Situation("decoding from bytes, no workers", "decoding", "--data {photos} --decoder buffer"),
    Situation(
        "crops by PIL, torch's own threads", "decoding", "--data {photos} --transform crop --threads 2"
    ),
    Situation("decoding with one worker", "decoding", "--data {photos} --workers 1"),
    Situation("decoding with two workers", "decoding", "--data {photos} --workers 2"),
    Situation(
        "torchvision's transforms on an ImageFolder, no workers",
        "decoding",
        "--data {classes} --decoder imagefolder --transform torchvision",
    ),
    Situation(
        "torchvision's transforms on an ImageFolder, two workers",
        "decoding",
        "--data {classes} --decoder imagefolder --transform torchvision --workers 2",
    ),
    Situation(
        "a rehearsal of short epochs",
        "decoding",
        "--data {classes} --decoder imagefolder --transform torchvision --workers 2 --epochs 2 --samples 80",
        seconds=20,
    ),
    Situation(
        "torchvision's transforms in a dataset of one's own",
        "decoding",
        "--data {photos} --transform torchvision --workers 2",
    ),
    Situation("a NumPy transform, no workers", "transforms", "--data {small} --transform numpy"),
    Situation(
        "a NumPy transform, one worker",
        "transforms",
        "--data {small} --transform numpy --workers 1",
    ),
    Situation("a transform that sleeps", "transforms", "--data {small} --transform sleep"),
    Situation(
        "a transform that sleeps, one worker",
        "transforms",
        "--data made --transform sleep --workers 1",
    ),
    Situation("a transform in pure Python", "transforms", "--data made --transform python"),
    Situation("a blur of PIL's", "transforms", "--data {small} --transform blur --workers 2"),
    Situation("a step that sleeps", "model", "--data {small} --step sleep --steps 60"),
    Situation("a step that sleeps, with workers", "model", "--data {small} --step sleep --workers 2"),
    Situation("a large linear model", "model", "--data made --step linear"),
    Situation("a convolutional model", "model", "--data {small} --step conv --workers 1"),
    Situation(
        "log lines that are synced to the disk",
        "main thread",
        "--data made --log fsync --out {out} --epochs 9",
    ),
    Situation(
        "log lines beside a quarter of waiting",
        "main thread",
        # Both sleep, which takes as long beside other work.
        "--data made --transform sleep --log sleep --batch 1 --epochs 9",
        is_short=True,
    ),
    Situation("a long warm-up", "decoding", "--data {photos} --warm-up 4"),
    Situation(
        "an evaluation that decodes",
        "model",
        "--data {small} --samples 64 --step sleep --evaluate {photos} --epochs 3",
        seconds=20,
    ),
    Situation("a log function that sleeps", "main thread", "--data made --log sleep --workers 1"),
    Situation("a log in JSON", "main thread", "--data made --log json --out {out}"),
    Situation("a checkpoint each step", "main thread", "--data made --log checkpoint --out {out}"),
    Situation(
        "tiny data with workers",
        "little",
        "--data made --samples 24 --workers 2 --epochs 4",
        measures="whole_s",
        seconds=20,
        is_short=True,
    ),
    Situation("tiny data", "little", "--data made --samples 24", measures="whole_s"),
    Situation(
        "batches of large tensors",
        "transport",
        "--data large --workers 2 --batch 32 --samples 4000",
        seconds=3,
    ),
    Situation("a slow collate_fn", "transport", "--data made --collate slow --workers 1"),
    Situation(
        "starved by a quota",
        "decoding",
        "--data {photos} --workers 2 --epochs 9",
        place="quota",
        limit="quota",
    ),
    Situation(
        "a small /dev/shm",
        "transport",
        "--data large --workers 2 --batch 32",
        place="shm",
        limit="/dev/shm",
        is_short=True,
    ),
    Situation(
        "a small /dev/shm, fastload's loader",
        "transforms",
        "--data made --transform numpy --fastload",
        place="shm",
        limit="/dev/shm",
    ),
    Situation(
        "a disk of high latency",
        "storage",
        "--data {slow} --decoder buffer --samples 300",
        place="latency",
    ),
    Situation(
        "a disk of high latency, two workers",
        "storage",
        "--data {slow} --decoder cv2 --samples 300 --workers 2",
        place="latency",
        # An epoch is short, and includes the start of its workers.
        measures="whole_s",
    ),
    Situation(
        "a disk of low bandwidth",
        "storage",
        "--data {slow} --decoder buffer --samples 300",
        place="bandwidth",
    ),
]


def make_photos(folder: Path, count: int, height: int, width: int) -> Path:
    """Make JPEGs that take as long to decode as photos."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = rng.integers(0, 255, (height // 8, width // 8, 3), np.uint8)
        image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
        noise = rng.integers(0, 24, image.shape, np.uint8)
        cv2.imwrite(str(folder / f"{number:04d}.jpg"), cv2.add(image, noise), [cv2.IMWRITE_JPEG_QUALITY, 90])
    return folder


def make_folders(root: Path) -> dict[str, Path]:
    """Make the folders that the situations use."""
    out = root / "out"
    out.mkdir(parents=True, exist_ok=True)
    photos = make_photos(root / "photos", 48, 720, 960)
    classes = root / "classes"
    classes.mkdir(exist_ok=True)
    (classes / "one").symlink_to(photos)
    return {
        "photos": photos,
        "classes": classes,
        "small": make_photos(root / "small", 48, 64, 64),
        "many": make_photos(root / "many", 300, 240, 320),
        "out": out,
    }


# Arguments that apply a fix; None: no argument applies it.
APPLIED: dict[str, Callable[[str], str | None]] = {
    "less often": lambda action: "--log-every 10",
    "no workers": lambda action: "--workers 0",
    "persistent workers": lambda action: "--persistent",
    "loader": lambda action: "--fastload",
    "compile": lambda action: "--fastload --compile",
    "decoder": lambda action: "--fastload --compile --decoder folder",
    "workers": lambda action: f"--workers {action.partition('num_workers=')[2].partition(')')[0]}",
}
