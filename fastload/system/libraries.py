"""Folders of Python's own modules, of installed packages and of fastload."""

from __future__ import annotations

import os
import site
import sysconfig


def _library_folders() -> tuple[str, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages())
    folders.add(site.getusersitepackages())
    folders.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return tuple(os.path.join(folder, "") for folder in folders)


LIBRARY_FOLDERS = _library_folders()
"""Each ends with a separator. A file in one of them belongs to a library, wherever the user's script is."""
