"""A dataset of labels and further fields, and the rows of a table written by unpacking."""

import csv

from tests.folders import pixels


class LabelledImages:
    """One image for each label, with further fields."""

    def __init__(self, classes, labels, **more):
        self.classes, self.labels, self.more = classes, labels, more

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        more = {name: values[index] for name, values in self.more.items()}
        return pixels(index, 8, 8), {"label": self.labels[index], **more}


def rows_of(table):
    """The rows of a CSV file, as dicts."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))
