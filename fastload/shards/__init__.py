"""The packed format: what a record holds, and the two containers that store it (docs/format.md)."""
