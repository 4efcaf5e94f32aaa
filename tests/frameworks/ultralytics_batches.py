"""A batch of samples with objects, made by Ultralytics and by `collate_ultralytics`, which must be equal.

python -m tests.frameworks.ultralytics_batches
"""

import os

import numpy as np
import torch

import fastload

os.environ.update(YOLO_OFFLINE="true", YOLO_VERBOSE="false")

HEIGHT, WIDTH = 96, 128


def objects(rng, count):
    """Random quadrangles, some beyond the edge of the image; their boxes, and keypoints."""
    middles = rng.uniform((0, 0), (WIDTH, HEIGHT), (count, 1, 2))
    angles = np.sort(rng.uniform(0, 2 * np.pi, (count, 4)), axis=1)[..., None]
    offsets = np.concatenate((np.cos(angles), np.sin(angles)), axis=2) * rng.uniform(3, 40, (count, 1, 1))
    corners = np.clip(middles + offsets, 0, (WIDTH - 1, HEIGHT - 1)).astype(np.float32)
    boxes = np.concatenate((corners.min(axis=1), corners.max(axis=1)), axis=1)
    points = np.concatenate((corners[:, :3], rng.integers(0, 3, (count, 3, 1))), axis=2).astype(np.float32)
    return corners, boxes, points, rng.integers(0, 9, count)


def theirs(samples, **options):
    from ultralytics.data.augment import Format
    from ultralytics.data.dataset import YOLODataset
    from ultralytics.utils.instance import Instances

    batch = []
    for image, corners, boxes, points, labels in samples:
        instances = Instances(boxes.copy(), corners.copy(), points.copy(), "xyxy", normalized=False)
        entry = {"img": image[..., ::-1], "cls": labels[:, None].astype(np.float32), "instances": instances}
        batch.append(Format(bbox_format="xywh", normalize=True, batch_idx=True, **options)(entry))
    return YOLODataset.collate_fn(batch)


def ours(samples, *names):
    batch = []
    for image, corners, boxes, points, labels in samples:
        tensors = {"corners": torch.from_numpy(corners), "keypoints": torch.from_numpy(points)}
        tensors["polygons"] = [[torch.from_numpy(ring)] for ring in corners]
        target = {"boxes": torch.from_numpy(boxes), "labels": torch.from_numpy(labels)}
        target |= {name: tensors[name] for name in names}
        batch.append((torch.from_numpy(image).permute(2, 0, 1), target))
    return fastload.collate_ultralytics(batch)


def main():
    rng = np.random.default_rng(0)
    samples = []
    for count in (5, 0, 40, 1, 300):
        image = rng.integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        samples.append((image, *objects(rng, count)))
    for options, names in (
        ({}, ()),
        ({"return_keypoint": True}, ("keypoints",)),
        ({"return_mask": True, "mask_ratio": 4, "mask_overlap": True}, ("polygons",)),
        ({"return_obb": True}, ("corners",)),
    ):
        # Bytes number at most 255 objects, in whole batches of ours as in single images of theirs.
        chosen = samples if "polygons" in names else samples[:4]
        expected, found = theirs(chosen, **options), ours(chosen, *names)
        for name, value in found.items():
            assert value.shape == expected[name].shape, (name, value.shape, expected[name].shape)
            if name == "masks":
                np.testing.assert_array_equal(value.numpy(), expected[name].numpy())
            else:
                np.testing.assert_allclose(value.numpy(), expected[name].numpy(), atol=1e-5, err_msg=name)


if __name__ == "__main__":
    main()
