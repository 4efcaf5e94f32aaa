"""torchvision's detection models train from a packed COCO dataset, in lists of images and targets."""

import pytest
import torch

import fastload.transforms as T
from fastload import DataLoader, PackedDataset, collate_lists, pack
from tests.layouts.samples import coco
from tests.tools import imported


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_faster_rcnn_trains_from_a_packed_coco(tmp_path, monkeypatch):
    detection = imported("torchvision.models.detection")
    boxes = imported("torchvision.ops.boxes")
    anchors = imported("torchvision.models.detection.anchor_utils")
    # Compiled operators may be missing beside torch's CPU build; which boxes are proposed does not matter.
    monkeypatch.setattr(boxes, "nms", lambda found, scores, limit: scores.argsort(descending=True)[:8])
    monkeypatch.setattr("torchvision.ops.poolers.roi_align", _mean_of_regions)
    pack(coco(tmp_path / "data"), tmp_path / "x.fl", encode="keep", workers=1)
    transform = T.Compose([T.RandomHorizontalFlip(), T.ConvertImageDtype(torch.float32)])
    dataset = PackedDataset(tmp_path / "x.fl", transform=transform)
    backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 8, 8))
    backbone.out_channels = 4
    model = detection.FasterRCNN(
        backbone,
        min_size=40,
        max_size=64,
        rpn_anchor_generator=anchors.AnchorGenerator(((16, 32),), ((1.0,),)),
        rpn_post_nms_top_n_train=8,
        box_head=torch.nn.Flatten(),
        box_predictor=detection.faster_rcnn.FastRCNNPredictor(4 * 49, len(dataset.classes) + 1),
    ).train()
    seen = 0
    for images, targets in DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=collate_lists):
        losses = model(images, [dict(each, labels=each["labels"] + 1) for each in targets])
        sum(losses.values()).backward()
        assert all(torch.isfinite(loss) for loss in losses.values())
        seen += sum(len(each["boxes"]) for each in targets)
    assert seen == 3
    assert backbone[0].weight.grad.abs().sum() > 0


def _mean_of_regions(features, regions, output_size, **_):
    return features.mean((2, 3))[regions[:, 0].long(), :, None, None].expand(-1, -1, *output_size)
