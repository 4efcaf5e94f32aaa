"""YOLO datasets: images and label files, with or without a data.yaml."""
