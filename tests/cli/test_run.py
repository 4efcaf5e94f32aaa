"""`fastload run`: the script's own output and exit code, and what was replaced."""

import os
import subprocess
import sys
import textwrap
import venv

import pytest

from fastload.system.script import find
from tests import commands
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
    return commands.run("run", *words)


def test_labels_order_and_crops_are_those_of_a_plain_run(script, photos):
    path = script(TRAIN)
    plain = commands.run_python(path, photos)
    ours = run(path, photos)
    assert (plain.returncode, ours.returncode) == (0, 0), ours.stderr
    assert ours.stdout == plain.stdout
    assert plain.stderr.split()[-1] == "torch"
    assert ours.stderr.split()[0] == "fastload"


def test_what_was_replaced_is_printed_at_the_end(script, photos):
    done = run(script(TRAIN), photos)
    assert "train.py:17: DataLoader of ImageFolder, 12 samples" in done.stderr
    assert "RandomResizedCrop     while decoding" in done.stderr
    assert "  from fastload import DataLoader\n" in done.stderr
    quiet = run("--quiet", script(TRAIN), photos)
    assert quiet.stderr == "fastload\n"


def test_draws_of_a_loader_without_workers_are_torchs_unless_it_is_tuned(script, photos):
    reason = "getattr(getattr(loader, 'plan', None), 'num_workers', None)"
    end = f"    print(torch.rand(1).item())\n    print({reason})\n"
    path = script(TRAIN.replace(", num_workers=1", "") + end)
    plain = commands.run_python(path, photos)
    ours, tuned = run(path, photos), run("--tune", path, photos)
    *lines, last = ours.stdout.splitlines()
    assert lines == plain.stdout.splitlines()[:-1], plain.stderr
    assert "set by you" in last
    assert "set by you" not in tuned.stdout.splitlines()[-1]


def test_a_loader_of_fastload_that_a_script_makes_itself_stays_as_it_is(script):
    text = """
        from fastload import DataLoader
        import torch.utils.data
        loader = DataLoader(range(4))
        assert isinstance(loader, torch.utils.data.DataLoader)
        print(loader.compile, "set by you" in str(loader.plan))
        print([batch.tolist() for batch in loader])
        """
    path = script(text)
    plain, ours = commands.run_python(path), run(path)
    assert (ours.returncode, ours.stdout) == (0, plain.stdout)
    assert "nothing was replaced" in ours.stderr


def test_a_package_that_imports_the_loader_first_gets_the_replaced_one(tmp_path, monkeypatch):
    package = tmp_path / "project"
    package.mkdir()
    (package / "__init__.py").write_text("from torch.utils.data import DataLoader")
    (package / "train.py").write_text("from . import DataLoader\nprint(len(DataLoader(range(5))))")
    monkeypatch.chdir(tmp_path)
    done = run("-m", "project.train")
    assert (done.returncode, done.stdout) == (0, "5\n")
    assert "project/train.py:2: DataLoader of range" in done.stderr


def test_a_script_without_a_loader_runs_as_it_is(script):
    done = run(script("import sys; print(sys.argv[1:]); sys.exit(3)"), "--lr", "0.1")
    assert done.returncode == 3
    assert done.stdout == "['--lr', '0.1']\n"
    assert "nothing was replaced" in done.stderr
    closed = run(script("import sys; sys.stdout.close(); sys.stderr.close(); sys.exit(4)"))
    assert closed.returncode == 4


def test_a_process_that_the_script_forks_prints_no_summary(script):
    done = run(script("import os\nif os.fork():\n    os.wait()\nelse:\n    raise SystemExit(3)\n"))
    assert done.returncode == 0
    assert done.stderr.count("nothing was replaced") == 1


def test_an_unknown_dataset_is_left_as_it_is(script):
    path = script(
        """
        from torch.utils.data import DataLoader
        print([batch.tolist() for batch in DataLoader(range(5), batch_size=2, num_workers=0)])
        """
    )
    done = run(path)
    assert done.stdout == "[[0, 1], [2, 3], [4]]\n"
    assert "DataLoader of range, 5 samples" in done.stderr
    assert "left as it is" in done.stderr
    assert "To keep it" not in done.stderr


def test_an_error_of_the_script_is_shown_as_by_python(script):
    done = run(script("def train():\n    raise KeyError('lr')\ntrain()\n"))
    assert done.returncode == 1
    assert "KeyError: 'lr'" in done.stderr
    assert "fastload/" not in done.stderr


def test_the_scripts_own_excepthook_is_called(script):
    text = """
import sys
def hook(kind, error, trace):
    print(kind.__name__, error, trace.tb_frame.f_code.co_name)
    if len(sys.argv) > 1:
        raise ValueError("in the hook")
sys.excepthook = hook
raise KeyError("lr")
"""
    done = run("--quiet", script(text))
    assert (done.returncode, done.stdout, done.stderr) == (1, "KeyError 'lr' <module>\n", "")
    failing = run("--quiet", script(text), "x")
    assert failing.returncode == 1
    assert "ValueError: in the hook" in failing.stderr
    assert failing.stderr.endswith("KeyError: 'lr'\n")


HELPED = """
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "{folder}"))
from torch.utils.data import DataLoader, TensorDataset
import torch

import loaders
data, other = TensorDataset(torch.arange(6.0)), TensorDataset(torch.arange(6))
for epoch in range(2):
    parts = [DataLoader(part, 2, num_workers=0) for part in (data, range(4))]
print([len(list(loader)) for loader in parts])
print(len(loaders.made(other)))
"""
LOADERS = """
from torch.utils.data import DataLoader

def made(dataset):
    return DataLoader(dataset, 3, num_workers=0)

def again(loader):
    return DataLoader(loader.dataset, 1, num_workers=0)
"""


def _places(stderr):
    return [line.split(",")[0].strip() for line in stderr.splitlines() if ": DataLoader of " in line]


def test_loaders_are_named_by_the_scripts_own_line(script, tmp_path):
    """Two of one line are both listed, those of a second epoch are not."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "loaders.py").write_text(LOADERS)
    done = run(script(HELPED.format(folder="own")))
    assert done.stdout == "[3, 2]\n2\n", done.stderr
    assert _places(done.stderr) == [
        "train.py:12: DataLoader of TensorDataset",
        "train.py:12: DataLoader of range",
        "own/loaders.py:5: DataLoader of TensorDataset",
    ]
    assert "fastload.compile(dataset)" not in done.stderr


WRAPPED = """
from torch.utils.data import DataLoader
names = {"plain": DataLoader.__init__}
exec(compile("def init(of, *args, **options): plain(of, *args, **options)", "library.py", "exec"), names)
DataLoader.__init__ = names["init"]
list(DataLoader(range(4), num_workers=1))
"""


def test_a_line_whose_loader_a_library_wraps_still_makes_it_itself(script):
    """As Lightning does, which wraps `__init__`."""
    done = run(script(WRAPPED))
    assert _places(done.stderr) == ["train.py:6: DataLoader of range"]
    assert "from fastload import DataLoader" in done.stderr
    assert "fastload.compile(dataset)" not in done.stderr


def test_an_environment_in_the_scripts_folder_is_not_the_scripts_own(script, tmp_path):
    environment = tmp_path / ".venv"
    venv.create(environment, with_pip=False, symlinks=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "loaders.py").write_text(LOADERS)
    text = HELPED + "print(len(loaders.again(parts[0])))\n"
    path = script(text.format(folder=packages.relative_to(tmp_path)))
    search = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [environment / "bin" / "python", "-m", "fastload", "run", path],
        capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=search),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Of a dataset that had a loader before, a library's is not a further one.
    assert [place.split(":")[1] for place in _places(done.stderr)] == ["12", "12", "14"], done.stderr
    # Nothing of it was compiled.
    assert "fastload.compile(dataset)" not in done.stderr


def test_a_script_is_known_by_a_link_to_it(script, tmp_path):
    """Python looks for its modules beside the file that the link leads to."""
    path = script("import loaders; print(len(loaders.made(range(4)))); loaders.DataLoader(range(3))")
    (tmp_path / "loaders.py").write_text(LOADERS)
    link = tmp_path / "elsewhere" / "link.py"
    link.parent.mkdir()
    link.symlink_to(path)
    done = run(link)
    assert done.stdout == "2\n", done.stderr
    assert _places(done.stderr) == [
        "loaders.py:5: DataLoader of range",
        "elsewhere/link.py:1: DataLoader of range",
    ]


def test_image_files_are_cached(script, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = run("--cache", "disk", script(TRAIN), photos)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    assert list((tmp_path / "fastload").glob("photos-*.lock"))


def test_a_cache_that_cannot_be_used_is_said_once(script, photos, tmp_path, monkeypatch):
    text = (
        OPERATORS
        + """
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor
from fastload import FolderDataset
from torch.utils.data import DataLoader, TensorDataset
import sys, torch
for _ in range(2):
    DataLoader(FolderDataset(sys.argv[1]), num_workers=0)
DataLoader(TensorDataset(torch.arange(3)), num_workers=0)
class Own(ImageFolder):
    def __getitem__(self, index):
        return {"image": super().__getitem__(index)[0]}
DataLoader(Own(sys.argv[1], ToTensor()), num_workers=0)
"""
    )
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    done = run("--quiet", "--cache", "disk", script(text), photos)
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith("fastload: the script runs without a cache: ")
    assert "must be a folder that can be written to" in first
    assert "needs a known dataset of image files, got Own" in second


def test_a_folder_does_not_hide_a_command_of_its_name(tmp_path, monkeypatch):
    command = tmp_path / "bin" / "yolo"
    command.parent.mkdir()
    command.write_text("print(1)\n")
    command.chmod(0o755)
    (tmp_path / "yolo").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(command.parent))
    assert find("yolo", False, ["train"]).argv == [str(command), "train"]


def test_a_dataset_that_decodes_itself_is_not_said_to_be_cropped_while_decoding(script, photos):
    text = TRAIN.replace(
        "if __name__",
        """import cv2
from PIL import Image
class Photos(torch.utils.data.Dataset):
    def __init__(self, root, transform):
        self.files, self.transform = [path for path, _ in ImageFolder(root).samples], transform
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        return self.transform(Image.fromarray(cv2.imread(self.files[index], cv2.IMREAD_COLOR_RGB))), index
if __name__""",
    ).replace("ImageFolder(sys", "Photos(sys")
    done = run(script(text), photos)
    assert "RandomResizedCrop     in one step, of the decoded image" in done.stderr, done.stderr
    assert "while decoding" not in done.stderr


def test_fastais_own_loader_is_named(script):
    text = "import sys, types\nsys.modules['fastai.data.load'] = types.ModuleType('load')\n"
    done = run(script(text))
    assert "nothing was replaced\n  fastai's DataLoader is not torch's" in done.stderr


def test_the_class_in_place_of_torchs_can_be_pickled_and_derived_from(script):
    text = """
        import abc, pickle
        from torch.utils.data import DataLoader
        class Derived(DataLoader, abc.ABC):
            pass
        loader = Derived(range(6), 2)
        list(loader)
        copied = pickle.loads(pickle.dumps(loader))
        print(len(list(copied)), isinstance(copied, DataLoader))
        """
    assert run(script(text)).stdout == "3 True\n"
