"""The loader's iterators: torch's own, over slots, with a record of how far they have come.

torch's iterators keep all that they do: starting, watching and ending workers, order, signals, exceptions,
timeouts, pinning. They are given a view of the loader in which a few settings are replaced.
"""

from fastload.loader.iterators.alone import SingleProcessIterator
from fastload.loader.iterators.start import Setting, Start
from fastload.loader.iterators.workers import WorkersIterator

__all__ = ["Setting", "SingleProcessIterator", "Start", "WorkersIterator"]
