"""Comparison of libraries that decode and transform images, measured on this machine."""
