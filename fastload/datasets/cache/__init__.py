"""Where the bytes of a dataset should live: on the disk where they are, in memory, or on the device.

options     Cache: what was asked for
choose      choose_cache(readings): what pays, and why; pure
readings    measuring what that asks for
attaching   a dataset's cache: opened, filled, reported
limits      how much memory may be taken
folder      the folder in which the processes of one user find their stores; who uses which
opening     the store that a process of this user already has, or a new one
layout      how a store lies in memory
store       one copy of records, in memory that any process of the user can map
filling     filling a store in the background, by a process of its own
records     a packed dataset's records, from a store where they lie in one
files       the same of a folder's files
pages       the page cache, filled in order
resident    a small dataset on a device, cropped and flipped there
views       what images on a device show of the stored ones
"""
