"""Interface to the operating system and the Python process, without knowledge of images or training."""
