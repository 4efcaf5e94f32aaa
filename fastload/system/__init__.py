"""Readings of this machine: CPUs, memory, open files, GPUs and disks, and what containers allow of them."""
