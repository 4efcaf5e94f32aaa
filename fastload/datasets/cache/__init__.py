"""Caches of datasets: in memory shared by all processes of a node, in a tmpfs, or on the device.

Decided by `choose`, measured by `readings`; a store (`layout`, `store`) is found or made by `opening`, filled
by the dataset's own reads (`files`, `records`) and in the background (`filling`).
"""
