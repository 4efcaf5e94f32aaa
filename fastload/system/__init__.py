"""Readings of this machine (CPUs, memory, disks, limits of containers), its signals, and running a script."""
