"""Storage: free space and changes that survive a crash; what a disk is, and what it gives.

Of a path: the file system and the kind of device beneath, the number and size of its files, the speeds of
reading them from the disk and from the page cache.
"""

from fastload.storage.disk import Disk, DiskKind, disk_of
from fastload.storage.files import Files, list_files
from fastload.storage.folders import free_bytes, fsync_folder, replace_folder
from fastload.storage.reading import Reading, Speed, measure_reading

__all__ = [
    "Disk",
    "DiskKind",
    "Files",
    "Reading",
    "Speed",
    "disk_of",
    "free_bytes",
    "fsync_folder",
    "list_files",
    "measure_reading",
    "replace_folder",
]
