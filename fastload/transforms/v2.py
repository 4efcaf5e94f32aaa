"""Import error that refers to fastload.transforms for the names of torchvision's second version."""

from fastload.transforms import elsewhere

raise ImportError(elsewhere("v2"))
