"""First steps with an installed wheel and only its dependencies, for `make dist`."""

import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np


def make_photos(folder: Path) -> None:
    """Write twenty images in two class folders."""
    rng = np.random.default_rng(0)
    for number in range(20):
        file = folder / ("cat", "dog")[number % 2] / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(file), rng.integers(0, 256, (240, 320, 3), np.uint8))


def command(*words: str | Path) -> None:
    print("$ fastload", *words, flush=True)
    subprocess.run(["fastload", *map(str, words)], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_photos(folder / "photos")
        command("--version")
        command("pack", folder / "photos", folder / "photos.fl", "--quiet")
        command("info", folder / "photos.fl")
        command("verify", folder / "photos.fl", "--quiet")

        import fastload
        import fastload.transforms as T

        assert "site-packages" in fastload.__file__, f"not the installed wheel: {fastload.__file__}"
        augment = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
        train = fastload.PackedDataset(folder / "photos.fl", transform=augment)
        loader = fastload.DataLoader(train, batch_size=4, shuffle=True, num_workers=2)
        shapes = {tuple(images.shape) for images, _ in loader}
        assert shapes == {(4, 3, 224, 224)}, shapes
        print(f"loaded {len(train)} samples with {sys.version.split()[0]}: {shapes.pop()}")


if __name__ == "__main__":
    main()
