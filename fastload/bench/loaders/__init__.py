"""Programs that `fastload bench load` compares, each a process of its own.

This folder is on the module path of every peer's Python, which has no fastload. So `epochs`, `photos`,
`_training` and `torchvision_operators` import nothing of this package by its name.
"""
