"""The command line: parse, call the library, print. Nothing else prints."""

import fastload
from fastload.errors import HOW_TO_INSTALL

# A file downloader on PyPI has the name fastload too. Installed later, its __init__.py lies over ours.
if not hasattr(fastload, "__version__"):
    raise ImportError(
        f"{fastload.__file__} must be this library's, and is of another project that is called fastload: "
        f"pip uninstall fastload fastload-vision, then {HOW_TO_INSTALL}"
    )
