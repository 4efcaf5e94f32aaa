"""Caches of datasets: in memory shared by all processes of a node, in a tmpfs, or on the device."""
