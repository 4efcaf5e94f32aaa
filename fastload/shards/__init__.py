"""The packed format: records, manifest, and the two containers that store them.

The page "The packed format, version 5" of the documentation is its specification.
"""
