"""LMDB databases and HDF5 files of other programs."""
