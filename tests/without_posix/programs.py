"""Programs that run in a Python without POSIX, and on Windows: functions, named on the command line."""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image

import fastload
import fastload.transforms as T
from fastload.cli.main import main
from tests.folders import class_folders, tree
from tests.remote.server import serving


class Photos(torch.utils.data.Dataset):
    """A user's own dataset."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, str]:
        with Image.open(self.paths[index]) as image:
            return torch.tensor(list(image.resize((8, 8)).getdata())), self.paths[index].name


def pack(folder: Path) -> None:
    """Pack, verify, replace, unpack, in both containers, by worker processes; pack and merge parts."""
    photos = class_folders(folder / "photos", 24, size=(40, 50))
    for container in ("hdf5", "lmdb"):
        dest = folder / f"{container}.fl"
        for overwrite in (False, True):
            fastload.pack(photos, dest, format=container, encode="jpeg", workers=2, overwrite=overwrite)
        assert not fastload.verify(dest, workers=2).damages
        assert fastload.unpack(dest, folder / container).files == 24
    for part in ((1, 2), (2, 2)):
        fastload.pack(photos, folder / "parts.fl", encode="keep", shard_size=20_000, part=part, workers=1)
    fastload.merge(folder / "parts.fl")
    fastload.pack(photos, folder / "whole.fl", encode="keep", shard_size=20_000, workers=2)
    assert tree(folder / "parts.fl") == tree(folder / "whole.fl")
    (folder / "none").mkdir()
    with contextlib.suppress(fastload.SourceError):
        fastload.pack(folder / "none", folder / "none.fl")
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def load(folder: Path) -> None:
    """Load in spawned workers what torch loads, from own and packed datasets, and resume."""
    dataset = Photos(class_folders(folder / "photos", 24, size=(40, 50)))
    batches = [
        list(kind(dataset, 8, num_workers=2)) for kind in (torch.utils.data.DataLoader, fastload.DataLoader)
    ]
    for (pixels, names), (same_pixels, same_names) in zip(*batches, strict=True):
        assert torch.equal(pixels, same_pixels)
        assert names == same_names
    fastload.pack(folder / "photos", folder / "photos.fl", encode="keep", workers=1)
    transform = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])
    for packed in (
        fastload.PackedDataset(folder / "photos.fl", transform=transform),
        fastload.FolderDataset(folder / "photos", transform=transform),
    ):
        epochs = []
        for workers in (0, 2):
            torch.manual_seed(1)
            epochs.append(
                [image for image, _ in fastload.DataLoader(packed, 8, shuffle=True, num_workers=workers)]
            )
        assert all(map(torch.equal, *epochs))
    loader = fastload.DataLoader(packed, 8, shuffle=True)
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert len(list(loader)) == 2


def fetch(folder: Path) -> None:
    """Read a dataset at a URL from copies, in this process and in workers; verify and unpack it."""
    photos = class_folders(folder / "served" / "photos", 24, size=(40, 50))
    fastload.pack(photos, folder / "served" / "photos.fl", encode="keep", shard_size=20_000, workers=1)
    with serving(folder / "served") as server:
        url = f"{server.url}/photos.fl"
        dataset = fastload.PackedDataset(
            url, transform=T.Resize((16, 16)), cache=fastload.Cache("disk", folder=folder / "copies")
        )
        for workers in (0, 2):
            assert len(list(fastload.DataLoader(dataset, 8, num_workers=workers))) == 3
        assert main(["verify", url]) == 0
        assert main(["unpack", url, str(folder / "out")]) == 0
        assert not list((folder / "out").glob(".fastload*"))
        del dataset
        assert main(["cache", "clear", url, "--folder", str(folder / "copies")]) == 0
    assert list((folder / "copies" / "fastload").iterdir()) == []


SCRIPT = """
import sys
from pathlib import Path
from torch.utils.data import DataLoader
from tests.without_posix.programs import Photos

if __name__ == "__main__":
    for _ in range(2):
        for pixels, names in DataLoader(Photos(Path(sys.argv[1])), batch_size=4, num_workers=2):
            pixels.sum()
"""


def diagnose(folder: Path) -> None:
    """Examine a folder and a script with spawned workers, and run the script with fastload's loader."""
    photos = class_folders(folder / "photos", 24, size=(40, 50))
    (folder / "train.py").write_text(SCRIPT)
    assert main(["doctor", "--quiet", str(photos)]) == 0
    for command in (["doctor", "--quiet"], ["run"]):
        done = run("-m", "fastload", *command, folder / "train.py", photos)
        assert "train.py" in done.stdout + done.stderr
    assert "nothing is replaced" not in done.stderr


def run(*words: object) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        globals()[sys.argv[1]](Path(scratch))
