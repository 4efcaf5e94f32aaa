"""Caches of datasets: one interface, with samples in memory shared by a node's processes or on a disk."""
