"""Runs the command line: `python -m fastload` is `fastload`."""

import sys

from fastload.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
