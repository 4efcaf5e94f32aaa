"""Numbers and types of images: arithmetic on levels, conversions to tensors and PIL images."""
