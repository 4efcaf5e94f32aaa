"""PIL or OpenCV? Decoding and transforming, library by library, measured on this machine."""
