"""The listing of a folder: one walk, which every recogniser and reader of a layout uses.

Order and links are those of torchvision's ImageFolder: names are sorted, links to folders are followed.
Unlike there, a folder that cannot be listed and a link back into its own path are errors.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fastload.errors import SourceError
from fastload.sources.files import OPEN_FILES_STEP, OUT_OF_DESCRIPTORS, READ_FLAGS
from fastload.sources.malformed import malformed

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The suffixes of image files, in any case: torchvision's IMG_EXTENSIONS."""

# AppleDouble (RFC 1740): macOS stores a file's metadata beside it, in a file with "._" before its name.
_APPLE_DOUBLE = b"\x00\x05\x16\x07"

_READ_BYTES = 1 << 16


@dataclass(slots=True)
class Folder:
    """The sorted names in one folder; `path` is relative to the listing's root, "" for the root."""

    path: str
    folders: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)  # files with an image suffix
    others: list[str] = field(default_factory=list)  # all other files

    @property
    def is_hidden(self) -> bool:
        """True if the folder, or one above it, is hidden."""
        return "/." in f"/{self.path}"

    @property
    def visible(self) -> list[str]:
        """The names of the folders that are not hidden."""
        start, stop = bisect.bisect_left(self.folders, "."), bisect.bisect_left(self.folders, "/")
        return self.folders[:start] + self.folders[stop:]

    def join(self, name: str) -> str:
        """Return the path of an entry relative to the listing's root."""
        return f"{self.path}/{name}" if self.path else name

    def others_with(self, *suffixes: str) -> list[str]:
        """Return the names of the files, other than images, that end in one of these lower-case suffixes."""
        return [name for name in self.others if name.lower().endswith(suffixes)]


class Listing:
    """The folders and files below a root, listed once; `name` is the path that the user gave, for messages.

    Paths are relative to the root, with `/` between their parts.
    """

    def __init__(self, name: str, root: str, folders: dict[str, Folder]) -> None:
        self.name = name
        self.root = root
        self.folders = folders
        self._names: dict[str, frozenset[str]] = {}

    @classmethod
    def walk(cls, name: str, *, skips_unlistable: bool = False) -> Listing:
        """List a folder; raise SourceError if it, or one below it, cannot be listed or leads into itself.

        Such folders are empty with `skips_unlistable`, for a folder that is not itself the source.
        """
        root = os.path.abspath(os.path.expanduser(name))
        folders: dict[str, Folder] = {}
        pending = [""]
        while pending:
            path = pending.pop()
            try:
                folder, links = _listed(root, path)
                for link in links:
                    _require_no_circle(root, folder.join(link))
            except SourceError:
                if not skips_unlistable:
                    raise
                folder = Folder(path)
            folders[path] = folder
            pending += map(folder.join, folder.folders)
        return cls(name, root, folders)

    @classmethod
    def covering(cls, root: str, folders: Iterable[str], files: Iterable[str] = ()) -> Listing:
        """List some folders, with those in them, and single files; nothing else below the root.

        All paths are absolute. Files that lie elsewhere than below the root are not listed.
        """
        listing = cls(root, root, {"": Folder("")})
        for place in sorted({*folders}):
            inside = _relative(place, root)
            if inside not in listing.folders or not inside:
                for folder in cls.walk(place).folders.values():
                    path = "/".join(filter(None, (inside, folder.path)))
                    listing.folders[path] = replace(folder, path=path)
        for place, name in map(os.path.split, filter(None, map(listing.place_of, files))):
            folder = listing.folders.setdefault(place, Folder(place))
            if name not in folder.others:
                folder.others = sorted([*folder.others, name])
        return listing

    def place_of(self, path: str) -> str | None:
        """Return an absolute path relative to the root, to which links may lead; None if it is elsewhere."""
        if path == self.root:
            return ""
        prefix = os.path.join(self.root, "")
        if path.startswith(prefix):
            return path.removeprefix(prefix)
        inside = _relative(os.path.realpath(path), os.path.realpath(self.root))
        return None if f"{inside}/".startswith("../") else inside

    def __getitem__(self, path: str) -> Folder:
        """Return a folder; one without entries if there is none of this path."""
        found = self.folders.get(path)
        return Folder(path) if found is None else found

    @property
    def top(self) -> Folder:
        """The root's entries."""
        return self.folders[""]

    @property
    def visible(self) -> list[Folder]:
        """The folders that are not hidden."""
        return [each for each in self.folders.values() if not each.is_hidden]

    @property
    def files(self) -> int:
        """The number of all files."""
        return sum(len(each.images) + len(each.others) for each in self.folders.values())

    def below(self, path: str) -> list[Folder]:
        """Return a folder and all folders below it, in the order of `sorted(os.walk(...))`."""
        if path == "":
            return [self.folders[each] for each in sorted(self.folders)]
        folder = self[path]
        if not folder.folders:
            return [folder]
        found, pending = [], [path]
        while pending:
            folder = self.folders[pending.pop()]
            found.append(folder)
            pending += map(folder.join, folder.folders)
        return sorted(found, key=lambda folder: folder.path)

    def images_below(self, path: str, *suffixes: str) -> list[str]:
        """Return the images below a folder, in the order of ImageFolder, and files with further suffixes."""
        return [
            folder.join(name)
            for folder in self.below(path)
            for name in (*folder.images, *(folder.others_with(*suffixes) if suffixes else ()))
        ]

    def view(self, path: str) -> Listing:
        """Return the listing of a folder below the root, without another walk."""
        if path == "":
            return self
        skipped = len(path) + 1
        folders = {}
        for folder in self.below(path):
            inner = folder.path[skipped:]
            folders[inner] = Folder(inner, folder.folders, folder.images, folder.others)
        return Listing(os.path.join(self.name, path), os.path.join(self.root, path), folders)

    def has_file(self, path: str) -> bool:
        """Return True if a file of this path was listed."""
        folder, _, name = path.rpartition("/")
        if folder not in self._names:
            found = self[folder]
            self._names[folder] = frozenset((*found.images, *found.others))
        return name in self._names[folder]

    def absolute(self, path: str) -> str:
        """Return the absolute path of an entry."""
        return os.path.join(self.root, path) if path else self.root

    def shown(self, path: str) -> str:
        """Return an entry's path below the path that the user gave, for messages."""
        return os.path.join(self.name, path) if path else self.name

    def head(self, path: str) -> bytes:
        """Return a file's first 64 KB, and the last ones of JSON; b"" if it cannot be read."""
        # In LabelMe's JSON with sorted keys, the image itself lies before its objects.
        shares = (0.0, 1.0) if path.lower().endswith(".json") else (0.0,)
        return b"".join(read_part(self.absolute(path), share) for share in shares)


def list_alone(path: str) -> Folder:
    """List a folder without those in it; one that cannot be listed is empty."""
    with contextlib.suppress(SourceError):
        return _listed(path, "")[0]
    return Folder("")


def is_image(name: str) -> bool:
    """Return True if a file is named like an image."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def stem_of(path: str) -> str:
    """Return a file's name without its suffix.

    >>> stem_of("images/train/a.jpg")
    'a'
    """
    return os.path.splitext(os.path.basename(path))[0]


def read_part(path: str, share: float = 0.0) -> bytes:
    """Return 64 KB at a relative position in a file, 0 for start, 1 for end; b"" if it cannot be read."""
    with contextlib.suppress(OSError):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                file.seek(int(share * max(0, os.path.getsize(path) - _READ_BYTES)))
                return file.read(_READ_BYTES)
    return b""


def head_of(path: str, size_bytes: int) -> bytes:
    """Return a file's first bytes, b"" for a pipe without a writer; raise OSError if it cannot be read."""
    handle = os.open(path, READ_FLAGS)
    try:
        return os.read(handle, size_bytes)
    except BlockingIOError:  # a pipe
        return b""
    finally:
        os.close(handle)


def _listed(root: str, path: str) -> tuple[Folder, list[str]]:
    """Return a folder, and the names in it that are links to folders."""
    place = f"{root}{os.sep}{path}"
    folders, links, files = [], [], []
    try:
        with os.scandir(place) as entries:
            for entry in entries:  # one by one: all at once, they would take more memory than the names
                if not _is_folder(entry):
                    files.append(entry.name)
                    continue
                folders.append(entry.name)
                if entry.is_symlink():
                    links.append(entry.name)
    except OSError as error:
        raise unlistable(os.path.normpath(place), error) from error
    folders.sort()
    files.sort()
    images = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES)]
    if (start := bisect.bisect_left(images, "._")) < len(images) and images[start].startswith("._"):
        images = [
            name for name in images if not (name.startswith("._") and _is_apple_double(f"{place}/{name}"))
        ]
    others = []
    if len(images) < len(files):
        chosen = {*images}
        others = [name for name in files if name not in chosen]
    return Folder(path, folders, images, others), links


def _relative(path: str, root: str) -> str:
    inside = os.path.relpath(path, root).replace(os.sep, "/")
    return "" if inside == "." else inside


def _is_apple_double(path: str) -> bool:
    with contextlib.suppress(OSError):
        return head_of(path, len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself; reading it as a file raises the proper error
        return False


def _require_no_circle(root: str, link: str) -> None:
    """Raise SourceError if a link leads to a folder above it."""
    target = os.stat(os.path.join(root, link))
    above = link
    while above:
        above = os.path.dirname(above)
        if os.path.samestat(target, os.stat(os.path.join(root, above))):
            place = os.path.join(root, link)
            must = "not be a link to a folder above it"
            raise malformed(place, must, f"one to {os.path.realpath(place)}", "remove the link")


def unlistable(path: str, error: OSError) -> SourceError:
    """Return the error about a folder that cannot be listed, or a file in it that cannot be opened."""
    is_limit = error.errno in OUT_OF_DESCRIPTORS
    step = OPEN_FILES_STEP if is_limit else "make it readable, or move it elsewhere"
    if isinstance(error, FileNotFoundError):
        step = "check its spelling"
    return malformed(path, "be a folder that can be listed", f"{error.strerror}", step)
