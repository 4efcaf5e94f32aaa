"""Makes a virtual environment for a peer that fastload is compared with: `install.py FOLDER`.

FFCV (https://github.com/libffcv/ffcv) cannot share fastload's environment: it is compiled here, against
the system's OpenCV and libjpeg-turbo, and pins what fastload leaves free. Nothing is installed outside
of FOLDER; what the system lacks is named.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

FFCV = "ffcv==1.0.2"
REQUIREMENTS = Path(__file__).with_name("ffcv.txt")
# What its build asks pkg-config for.
LIBRARIES = ("opencv4", "libturbojpeg")
DEBIAN = "apt-get install g++ pkg-config libopencv-dev libturbojpeg0-dev"
# It loads the functions that it compiles when it is imported.
PROOF = "import ffcv.writer, ffcv.fields; print('FFCV is ready')"


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: install.py FOLDER")
    folder = Path(sys.argv[1])
    if lacking := _lacking():
        raise SystemExit(f"FFCV's build needs {', '.join(lacking)}; on Debian, as root: {DEBIAN}")
    venv.create(folder, with_pip=True, clear=True)
    (folder / ".gitignore").write_text("*\n")
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", REQUIREMENTS], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--no-deps", FFCV], check=True)
    subprocess.run([python, "-c", PROOF], check=True)


def _lacking() -> list[str]:
    """What this system does not have of what the build needs."""
    if shutil.which("pkg-config") is None:
        return ["pkg-config"]
    lacking = [] if shutil.which("c++") or shutil.which("g++") else ["a C++ compiler"]
    for library in LIBRARIES:
        if subprocess.run(["pkg-config", "--exists", library]).returncode:
            lacking.append(library)
    return lacking


if __name__ == "__main__":
    main()
