"""Class folders and tables of images, by the tests that every layout passes."""

from tests.layouts.conformance import SourceConformance
from tests.layouts.samples import mask, photo, written


class TestClassFolders(SourceConformance):
    def make(self, root):
        names = [f"{name}/{name} {at}.jpg" for name in ("cat", "dög") for at in range(2)]
        return written(root, {name: photo(at) for at, name in enumerate(names)})

    unclaimed = ("notes.docx", "cat/deep/data.bin")  # any photo would be of a class


class TestClassFoldersInSplits(SourceConformance):
    unclaimed = ("notes.docx", "train/deep/data.bin", "extra/photo.jpg")

    def make(self, root):
        names = ["train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg", "val/dog/4.jpg"]
        return written(root, {name: photo(at) for at, name in enumerate(names)})


class TestTable(SourceConformance):
    def make(self, root):
        rows = "".join(f"images/{at}.jpg,{name},masks/{at}.png\n" for at, name in enumerate("aba"))
        tree = {f"images/{at}.jpg": photo(at) for at in range(3)}
        tree |= {f"masks/{at}.png": mask(at) for at in range(3)}
        return written(root, {**tree, "t.csv": f"path,label,mask\n{rows}"}) / "t.csv"
