"""Says that torchvision's functions must be taken from torchvision, to whoever imports it from here."""

from fastload.transforms import elsewhere

raise ImportError(elsewhere("functional"))
