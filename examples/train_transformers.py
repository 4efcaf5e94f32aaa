"""A ResNet of Hugging Face trained by its Trainer, from a dataset of its `datasets`.

python train_transformers.py photos/
"""

import argparse
from typing import Any

from datasets import load_dataset
from torchvision import transforms
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import fastload


def main(folder: str, size: int, epochs: int) -> None:
    """Train, and print the average loss."""
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )

    def to_inputs(rows: dict[str, Any]) -> dict[str, Any]:
        images = [augment(image.convert("RGB")) for image in rows["image"]]
        return {"pixel_values": images, "labels": rows["label"]}

    rows = load_dataset("imagefolder", data_dir=folder, split="train")
    dataset = fastload.compile(rows.with_transform(to_inputs))
    config = ResNetConfig(num_labels=rows.features["label"].num_classes)
    options = TrainingArguments(
        output_dir="trained",
        num_train_epochs=epochs,
        per_device_train_batch_size=64,
        dataloader_num_workers=2,
        remove_unused_columns=False,  # otherwise the images are removed before they are transformed
        report_to="none",
    )
    trainer = Trainer(ResNetForImageClassification(config), options, train_dataset=dataset)
    print(f"loss {trainer.train().training_loss:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of class folders")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=1)
    main(**vars(parser.parse_args()))
