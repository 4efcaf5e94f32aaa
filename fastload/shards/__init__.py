"""The packed format: records, manifest, and the two containers that store them (docs/format.md)."""
