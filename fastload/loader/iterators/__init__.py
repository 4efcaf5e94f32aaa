"""The loader's iterators: torch's own, with shared-memory slots, recorded times and progress.

torch's iterators still do all their work: starting, watching and ending workers, order, signals, exceptions,
timeouts, pinning. They read a view of the loader in which a few settings are replaced.
"""
