"""Create a virtual environment for a peer that fastload is compared with: `install.py FOLDER`.

The folder's name selects the peer, one of `PEERS`. None of them shares fastload's environment: FFCV
(https://github.com/libffcv/ffcv) is compiled here, against the system's OpenCV and libjpeg-turbo, and pins
versions that fastload leaves open; DALI brings a gigabyte of libraries, and MosaicML Streaming the clients of
every object store. Nothing is installed outside of FOLDER; missing system packages are listed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Peer:
    """Installation of a peer.

    Attributes:
        proof: Python code that fails if the peer does not work.
        without_dependencies: A requirement to install after its file's, without its dependencies.
        libraries: Libraries of its build, by pkg-config's names; a build also needs a compiler.
        debian: Debian's command that installs the build's needs.
    """

    proof: str
    without_dependencies: str = ""
    libraries: tuple[str, ...] = ()
    debian: str = ""


# For peers that import torchvision, next to a torch without CUDA.
_TORCHVISION = "from torchvision_operators import declare_operators; declare_operators()"

PEERS = {
    "ffcv": Peer(
        # When it is imported, it loads the functions that it has compiled.
        proof="import ffcv.writer, ffcv.fields",
        without_dependencies="ffcv==1.0.2",
        libraries=("opencv4", "libturbojpeg"),
        debian="apt-get install g++ pkg-config libopencv-dev libturbojpeg0-dev",
    ),
    "dali": Peer(proof="import nvidia.dali.fn"),
    "webdataset": Peer(proof="import webdataset, cv2"),
    "litdata": Peer(proof=f"{_TORCHVISION}; import litdata, cv2"),
    "streaming": Peer(proof=f"{_TORCHVISION}; import streaming, cv2"),
    "grain": Peer(proof="import grain.python, cv2"),
    "spdl": Peer(proof="import spdl.io, spdl.pipeline, cv2"),
}


def main() -> None:
    if len(sys.argv) != 2 or Path(sys.argv[1]).name not in PEERS:
        raise SystemExit(f"usage: install.py FOLDER, which must be named {', '.join(PEERS)}")
    folder = Path(sys.argv[1])
    peer = PEERS[folder.name]
    if lacking := _lacking(peer):
        raise SystemExit(
            f"{folder.name}'s build needs {', '.join(lacking)}; on Debian, as root: {peer.debian}"
        )
    venv.create(folder, with_pip=True, clear=True)
    (folder / ".gitignore").write_text("*\n")
    python = folder.absolute() / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", Path(__file__).with_name(f"{folder.name}.txt")], check=True)
    if peer.without_dependencies:
        subprocess.run([*pip, "--no-build-isolation", "--no-deps", peer.without_dependencies], check=True)
    proof = [python, "-c", f"{peer.proof}; print('{folder.name} is ready')"]
    subprocess.run(proof, check=True, cwd=Path(__file__).resolve().parent)


def _lacking(peer: Peer) -> list[str]:
    """Return the build's needs that this system lacks."""
    if not peer.libraries:
        return []
    if shutil.which("pkg-config") is None:
        return ["pkg-config"]
    lacking = [] if shutil.which("c++") or shutil.which("g++") else ["a C++ compiler"]
    for library in peer.libraries:
        if subprocess.run(["pkg-config", "--exists", library]).returncode:
            lacking.append(library)
    return lacking


if __name__ == "__main__":
    main()
