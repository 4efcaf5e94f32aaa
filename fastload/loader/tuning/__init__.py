"""Tuning of a loader's parameters that its user has left unset, on the epochs' own batches."""
