"""The packed format: records, manifest, and the two containers that store them.

The page "The packed format" of the documentation is its specification.
"""
