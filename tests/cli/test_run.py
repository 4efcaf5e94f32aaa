"""`fastload run`: the script's own output and exit code, and what was replaced."""

import subprocess
import sys
import textwrap

import pytest

from tests.datasets.reference import folder_of

# A torchvision built for CUDA lacks its operators beside a torch for CPUs.
OPERATORS = """
import sys
import torch
operators = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        operators.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
TRAIN = (
    OPERATORS
    + """
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

if __name__ == "__main__":
    torch.manual_seed(0)
    steps = [transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    dataset = ImageFolder(sys.argv[1], transforms.Compose(steps))
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=1)
    for images, labels in loader:
        print(labels.tolist(), round(images.mean().item(), 2))
    print(type(loader).__module__.partition(".")[0], file=sys.stderr)
"""
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("photos") / "photos", [(60, 85), (97, 64)], 12)


@pytest.fixture
def script(tmp_path):
    def write(text):
        (tmp_path / "train.py").write_text(textwrap.dedent(text))
        return tmp_path / "train.py"

    return write


def run(*words):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)


def test_labels_order_and_crops_are_those_of_a_plain_run(script, photos):
    path = script(TRAIN)
    plain, ours = run(path, photos), run("-m", "fastload", "run", path, photos)
    assert (plain.returncode, ours.returncode) == (0, 0), ours.stderr
    assert ours.stdout == plain.stdout
    assert plain.stderr.split()[-1] == "torch"
    assert ours.stderr.split()[0] == "fastload"


def test_what_was_replaced_is_printed_at_the_end(script, photos):
    done = run("-m", "fastload", "run", script(TRAIN), photos)
    assert "train.py:17: DataLoader of ImageFolder, 12 samples" in done.stderr
    assert "RandomResizedCrop     while decoding" in done.stderr
    assert "DataLoader(…, compile=True)" in done.stderr
    quiet = run("-m", "fastload", "run", "--quiet", script(TRAIN), photos)
    assert quiet.stderr == "fastload\n"


def test_a_script_without_a_loader_runs_as_it_is(script):
    done = run("-m", "fastload", "run", script("import sys; print(sys.argv[1:]); sys.exit(3)"), "--lr", "0.1")
    assert done.returncode == 3
    assert done.stdout == "['--lr', '0.1']\n"
    assert "nothing was replaced" in done.stderr


def test_an_unknown_dataset_is_left_as_it_is(script):
    path = script(
        """
        from torch.utils.data import DataLoader
        print([batch.tolist() for batch in DataLoader(range(5), batch_size=2, num_workers=0)])
        """
    )
    done = run("-m", "fastload", "run", path)
    assert done.stdout == "[[0, 1], [2, 3], [4]]\n"
    assert "DataLoader of range, 5 samples" in done.stderr
    assert "left as it is" in done.stderr


def test_an_error_of_the_script_is_shown_as_by_python(script):
    done = run("-m", "fastload", "run", script("def train():\n    raise KeyError('lr')\ntrain()\n"))
    assert done.returncode == 1
    assert "KeyError: 'lr'" in done.stderr
    assert "fastload/" not in done.stderr
