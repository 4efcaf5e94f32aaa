"""Executors of a packing job: processes of this machine, or tasks on a Ray cluster."""
