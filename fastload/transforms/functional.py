"""Import error that refers to torchvision for its functions."""

from fastload.transforms import elsewhere

raise ImportError(elsewhere("functional"))
