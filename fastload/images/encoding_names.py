"""Names of the encodings, for what must not import OpenCV: the command line and the packed format."""

ENCODING_HELP = {  # by name
    "keep": "the files' bytes",
    "tiled": "JPEGs rewritten without loss, so that crops decode faster",
    "jpeg": "re-encoded",
    "yuv420": "1.5 bytes a pixel",
    "raw": "3 bytes a pixel",
}
ENCODING_NAMES = tuple(ENCODING_HELP)
"""The names of `encodings.ENCODINGS`."""
