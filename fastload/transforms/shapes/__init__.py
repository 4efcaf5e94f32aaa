"""Places of pixels: crops, resizes, flips and warps, with their boxes, masks and keypoints."""
