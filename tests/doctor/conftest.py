"""Images for the situations, made once, and scripts that load numbers."""

import textwrap

import pytest

from tests.doctor.situations import make_folders

LOOP = """
import sys, time, torch
from pathlib import Path
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    takes_s = 0.0
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep(self.takes_s)
        return torch.tensor(index) + torch.randint(0, 1000, ())

def batches(workers=0):
    torch.manual_seed(0)
    return [batch.tolist() for batch in DataLoader(Numbers(), 8, shuffle=True, num_workers=workers)]
"""


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("situations"))


@pytest.fixture
def script(tmp_path):
    def write(main, definitions=""):
        path = tmp_path / "train.py"
        # Guarded, as Python requires if workers are not forked, which is the default from 3.14 on.
        guarded = textwrap.indent(main or "pass", "    ")
        path.write_text(f"{LOOP}{definitions}if __name__ == '__main__':\n{guarded}\n")
        return path

    return write
