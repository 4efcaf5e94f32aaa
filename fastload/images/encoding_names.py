"""Names of encodings and dtypes, for what must not import OpenCV: the command line and the packed format."""

ENCODING_HELP = {  # by name
    "keep": "the files' bytes",
    "tiled": "JPEGs rewritten without loss, so that crops decode faster",
    "jpeg": "re-encoded",
    "yuv420": "1.5 bytes a pixel",
    "blosc": "pixels of any dtype, compressed without loss",
    "raw": "pixels of any dtype as they are",
}
ENCODING_NAMES = tuple(ENCODING_HELP)
"""The names of `encodings.ENCODINGS`."""

DTYPES = ("uint8", "uint16", "int16", "float16", "float32")
"""NumPy's names of the dtypes that images may have."""
