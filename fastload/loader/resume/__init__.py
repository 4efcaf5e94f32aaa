"""Resuming an epoch: the state of a loader, and drawing the same order again.

An epoch's order is a function of the random states at its start. So a loader's state holds these instead of
the order: the global states of torch, Python and NumPy, those of the generators of the loader and its
samplers, and the number of batches handed out. A resume draws the order again from these states, skips the
batches that were handed out without loading them, and restores the user's global states.
"""
