"""Map-style datasets in Python."""
