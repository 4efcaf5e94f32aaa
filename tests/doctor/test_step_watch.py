"""Facts of a training's step: its optimizers, and modules in evaluation."""

import torch
from torch.utils.data import DataLoader

from fastload.doctor.watching.watch import Watcher


def test_an_evaluation_with_gradients_or_in_training_mode_is_noticed(tmp_path):
    model = torch.nn.Linear(1, 1)
    watcher = Watcher(tmp_path)
    with watcher.watching():
        for batch in DataLoader(range(24), 4):
            model(batch.float()[:, None])
        model.eval()
        for batch in DataLoader(range(24), 4):
            model(batch.float()[:, None])
    assert [record.role() for record in watcher.records] == ["unknown", "evaluation"]
    assert [(record.with_grad, record.in_training_mode) for record in watcher.records] == [(6, 6), (6, 0)]


def test_optimizers_and_parallel_models_are_noticed(tmp_path):
    class BalancedDataParallel(torch.nn.DataParallel):
        pass

    watcher = Watcher(tmp_path)
    with watcher.watching():
        model = BalancedDataParallel(torch.nn.Conv2d(1, 1, 1))
        made = (torch.optim.Adam, {}), (torch.optim.SGD, {"fused": True}), (torch.optim.RMSprop, {})
        for kind, options in made:
            optimizer = kind(model.parameters(), lr=0.1, **options)
            model(torch.ones(1, 1, 1, 1)).sum().backward()
            optimizer.step()
        facts = watcher.step.facts()
    assert facts.faster_optimizers == ("Adam(…, fused=True)", "RMSprop(…, foreach=True)")
    assert facts.has_convolutions
    assert facts.parallel == "BalancedDataParallel"
    assert facts.threads == torch.get_num_threads()
