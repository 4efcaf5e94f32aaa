"""Pascal VOC datasets: images, XML files, masks and lists of splits."""
