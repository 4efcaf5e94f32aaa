"""Outcomes that tests of tuned loaders look at."""


def numbers(batches):
    """Return all samples of some batches, each a number."""
    return [int(number) for batch in batches for number in batch]


def cached_plans(tmp_path):
    """Return the files of cached plans."""
    return sorted((tmp_path / "cache").rglob("*.json"))
