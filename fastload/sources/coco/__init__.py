"""COCO datasets: a JSON file for each split, and folders of images."""
