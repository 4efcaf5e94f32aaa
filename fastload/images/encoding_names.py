"""Names of the encodings, for what must not import OpenCV: the command line and the packed format."""

ENCODING_NAMES = ("keep", "tiled", "jpeg", "yuv420", "raw")
"""The names of `encodings.ENCODINGS`."""
