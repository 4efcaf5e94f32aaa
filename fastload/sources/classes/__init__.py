"""Class folders as in torchvision's ImageFolder, and folders of images alone."""
