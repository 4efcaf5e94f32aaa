"""Comparisons that a user runs on their own machine: decoding libraries, and DataLoaders."""
