"""`fastload run`, with libraries that make a loader themselves, make it again, or take torch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_run import OPERATORS
from tests.commands import run_python
from tests.folders import class_folders
from tests.frameworks.programs import environment

COMMON = f"""{OPERATORS}
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

torch.set_num_threads(1)
steps = [transforms.RandomResizedCrop(16), transforms.ToTensor()]
dataset = ImageFolder(sys.argv[1], transforms.Compose(steps))
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 2))
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model, loader = accelerator.prepare(model, DataLoader(dataset, 4))
for images, labels in loader:
    accelerator.backward(cross_entropy(model(images), labels))
"""
LIGHTNING = """
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, index):
        return cross_entropy(self.model(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
options = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
lightning.Trainer(max_epochs=1, **options).fit(Module(), DataLoader(dataset, 4))
"""
TIMM = """
import timm.data
dataset = timm.data.create_dataset("", root=sys.argv[1], is_training=True)
options = dict(use_prefetcher=False, num_workers=0, device=torch.device("cpu"), interpolation="bilinear")
for images, labels in timm.data.create_loader(dataset, (3, 16, 16), 4, is_training=True, **options):
    cross_entropy(model(images), labels).backward()
"""
TRANSFORMERS = """
from transformers import Trainer, TrainingArguments
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model
    def forward(self, images, labels):
        return dict(loss=cross_entropy(self.model(images), labels))
def collate(rows):
    images, labels = zip(*rows)
    return dict(images=torch.stack(images), labels=torch.tensor(labels))
options = TrainingArguments("trained", num_train_epochs=1, save_strategy="no", report_to="none", use_cpu=True)
options.remove_unused_columns = False
Trainer(Module(), options, train_dataset=dataset, data_collator=collate).train()
"""
FASTAI = """
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
loaders = DataLoaders(DataLoader(dataset, 4), DataLoader(dataset, 4))
Learner(loaders, model, loss_func=CrossEntropyLossFlat()).fit(1, lr=0.1)
"""
IMPORT, COMPILE = "  from fastload import DataLoader", "  fastload.compile(dataset), for a library"


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        pytest.param(ACCELERATE, [IMPORT, COMPILE], marks=pytest.mark.frameworks("accelerate")),
        pytest.param(LIGHTNING, [IMPORT], marks=pytest.mark.frameworks("lightning")),
        pytest.param(TIMM, [COMPILE], marks=pytest.mark.frameworks("timm")),
        pytest.param(
            TRANSFORMERS, [COMPILE], marks=[pytest.mark.frameworks("transformers"), pytest.mark.soak]
        ),
        pytest.param(FASTAI, [IMPORT], marks=[pytest.mark.frameworks("fastai"), pytest.mark.soak]),
    ],
    ids=["accelerate", "lightning", "timm", "transformers", "fastai"],
)
def test_its_loaders_are_made_faster_without_an_edit(script: str, kept: list[str], tmp_path: Path) -> None:
    path, photos = (
        tmp_path / "train.py",
        class_folders(tmp_path / "photos", count=12, classes=2, size=(300, 400)),
    )
    path.write_text(COMMON + script)
    done = run_python(
        *("-W", "ignore", "-m", "fastload", "run", path, photos), cwd=tmp_path, env=environment(tmp_path)
    )
    errors = done.stderr
    assert done.returncode == 0, errors
    assert "12 samples" in errors, errors
    assert "while decoding, of the region that is needed" in errors
    _, _, ways = errors.partition("To keep it without 'fastload run':\n")
    lines = ways.splitlines()
    assert len(lines) == len(kept), ways
    assert all(line.startswith(way) for line, way in zip(lines, kept, strict=True)), ways
