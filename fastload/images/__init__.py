"""Images as bytes and as pixels: headers, decoding, tiles of JPEG, planes, sizes and encodings."""
