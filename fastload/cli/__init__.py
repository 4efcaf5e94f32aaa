"""Command line: parse, call the library, print. Nothing else prints."""

import fastload
from fastload.errors import HOW_TO_INSTALL

# A file downloader on PyPI is called fastload, too. Installed later, it overwrites our __init__.py;
# uninstalled again, it removes that file.
if not hasattr(fastload, "__version__"):
    found = (
        f"{fastload.__file__} belongs to another project that is called fastload"
        if fastload.__file__
        else "fastload/__init__.py is missing: uninstalling another project of that name removes it"
    )
    raise ImportError(f"{found}: pip uninstall fastload fastload-vision, then {HOW_TO_INSTALL}")
