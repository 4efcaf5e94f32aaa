"""Measurement of a training run: its loaders, steps, workers and ranks, while it runs unchanged."""
