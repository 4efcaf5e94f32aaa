"""Says that these names are those of torchvision's second version, too, to whoever imports it from here."""

from fastload.transforms import elsewhere

raise ImportError(elsewhere("v2"))
