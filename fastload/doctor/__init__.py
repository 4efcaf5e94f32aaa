"""The doctor's measuring: a script's training, a folder of images, a packed dataset."""
