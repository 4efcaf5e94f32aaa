"""Readings of this machine: CPUs, memory, disks, GPUs, and the limits that containers set."""
