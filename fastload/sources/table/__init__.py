"""Tables of images, labels, boxes and any other columns."""
