"""Images as bytes and as pixels: headers, decoding, JPEG tiles, resizing and encodings."""
