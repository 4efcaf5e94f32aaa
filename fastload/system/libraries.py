"""Folders of Python's own modules, of installed packages and of fastload."""

from __future__ import annotations

import os
import site
import sysconfig


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    folders.add(site.getusersitepackages())
    folders.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return tuple(os.path.join(folder, "") for folder in folders)


LIBRARY_FOLDERS = _library_folders()
"""Each ends with a separator. A file below one of them is a library's, wherever the user's script lies."""
