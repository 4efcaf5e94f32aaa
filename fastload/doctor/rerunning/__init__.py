"""Trials of the training step: the user's script, run again in a process of its own with one change."""
