"""Images made of several: mixed batches, mosaics and mixtures of images with objects."""
