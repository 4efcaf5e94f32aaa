"""What tests of tuned loaders look at."""


def numbers(batches):
    """All samples of some batches, each a number."""
    return [int(number) for batch in batches for number in batch]


def kept_plans(tmp_path):
    """The files of kept plans."""
    return sorted((tmp_path / "cache").rglob("*.json"))
