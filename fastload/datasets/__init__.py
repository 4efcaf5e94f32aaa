"""Map-style datasets of (image, target) from packed records or the files of a folder, and their caches."""
