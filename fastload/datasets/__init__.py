"""Map-style datasets of (image, target): packed records, or the files of a folder; and their caches."""
