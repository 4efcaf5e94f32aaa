"""Map-style datasets of (image, target), decoded by OpenCV.

images     what both share: transforms, whole batches
packed     PackedDataset: the records of shards
folder     FolderDataset: the files of a folder
"""
