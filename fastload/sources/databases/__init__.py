"""LMDB databases of other programs."""
