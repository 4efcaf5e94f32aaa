"""Python without what is POSIX only, and programs that run in it."""
