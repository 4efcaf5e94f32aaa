"""Descriptions of YOLO datasets, data.yaml by the rules of Ultralytics 8.4 or Darknet's, and their images."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from fastload.sources.files import read_text
from fastload.sources.listing import Listing, is_image, read_part
from fastload.sources.malformed import explaining, in_quotes, is_text, malformed
from fastload.sources.splits import SPLITS, by_split, split_names
from fastload.sources.yolo.labels import MOST_CLASSES, parallel_to

_MOST_POINTS = 10_000
_MOST_ABOVE = 3  # folders above a list, to which its lines may be relative
# labelImg's and Label Studio's, Darknet's and CVAT's, Roboflow's
_CLASSES_FILES = ("classes.txt", "obj.names", "_darknet.labels")
OTHER_DESCRIPTIONS = ("notes.json", "obj.data")  # theirs, which name the same classes and the lists
YAML_SUFFIXES = (".yaml", ".yml")
DARKNET_SUFFIX = ".data"

_YAML_SPLITS = re.compile(rb"^(%s)\s*:" % "|".join(SPLITS).encode(), re.MULTILINE | re.IGNORECASE)
_YAML_NAMES = re.compile(rb"^(names|nc)\s*:", re.MULTILINE)
_DARKNET_ENTRY = re.compile(r"^\s*(train|valid|names)\s*=\s*(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class YoloDescription:
    """A description of a dataset.

    `splits` holds absolute paths, `names_file` that of the classes, `further` other entries as YAML.
    """

    file: str = ""
    root: str = ""
    splits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    names_file: str = ""
    keypoints: tuple[int, int] | None = None
    further: str = ""

    @property
    def entries(self) -> list[str]:
        """The folders and lists of all splits."""
        return [entry for entries in self.splits.values() for entry in entries]

    @property
    def lists(self) -> list[str]:
        """The .txt files that list the images of splits."""
        return [path for path in self.entries if not os.path.isdir(path)]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """Loader of plain values that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        names = [key.value for key, _ in node.value if isinstance(key.value, str)]
        if len({*names}) < len(names):
            name = next(each for each in names if names.count(each) > 1)
            raise yaml.constructor.ConstructorError(None, None, f"a second {name!r}", node.start_mark)
        found: dict[object, object] = super().construct_mapping(node, deep)
        return found


def describes_splits(path: str) -> bool:
    """Return True for a data.yaml, or a Darknet file beside which its list of images lies."""
    if path.lower().endswith(DARKNET_SUFFIX):
        return "train" in _darknet_entries(path)
    is_data_yaml = os.path.basename(path).lower() in ("data.yaml", "data.yml")  # must have names
    head = read_part(path) if path.lower().endswith(YAML_SUFFIXES) else b""
    return bool(_YAML_SPLITS.search(head) and (is_data_yaml or _YAML_NAMES.search(head)))


def read_description(path: str) -> YoloDescription:
    """Read a description; raise SourceError, naming the entry, if it is malformed."""
    folder = os.path.dirname(os.path.abspath(path))
    if path.lower().endswith(DARKNET_SUFFIX):
        entries = _darknet_entries(path)
        names_file = entries.pop("names", "")
        lists = {SPLITS[name]: [entry] for name, entry in entries.items()}
        return YoloDescription(path, folder, lists, _lines(names_file) if names_file else (), names_file)
    errors = (OSError, ValueError, RecursionError, yaml.YAMLError)
    with explaining(errors, path, "be a yaml file", "correct it"), open(path, encoding="utf-8-sig") as file:
        content = yaml.load(file, _Loader)
    if not isinstance(content, dict):
        raise malformed(path, "be a mapping with train, val and names", type(content).__name__)
    named = {name: _entries(path, name, content[name]) for name in _split_names(content) if content[name]}
    given = by_split(path, named)
    if not given:
        raise malformed(path, "have train, val or test", ", ".join(map(str, content)))
    all_entries = [entry for entries in given.values() for entry in entries]
    root = _root(path, content.get("path"), all_entries)
    stated = {os.path.normpath(os.path.join(root, entry)) for entry in all_entries}
    if len({_resolved(root, entry) for entry in all_entries}) < len(stated):
        raise malformed(path, "have its splits in the folders that it names", in_quotes(all_entries))
    splits = {split: [_resolved(root, entry) for entry in entries] for split, entries in given.items()}
    if "test" in splits and not all(map(os.path.exists, splits["test"])) and len(splits) > 1:
        splits["test"] = []  # exported datasets name a test split even if they have none
    written = ("path", "names", *_split_names(content))  # `unpack` writes its own
    others = {name: value for name, value in content.items() if name not in written}
    further = yaml.safe_dump(others, sort_keys=False, allow_unicode=True) if others else ""
    keypoints = _keypoints(path, content.get("kpt_shape"))
    names = content.get("names")
    names_file = _resolved(root, names) if is_text(names) else ""
    classes = _classes(path, content, names_file)
    return YoloDescription(path, root, splits, classes, names_file, keypoints, further)


def _darknet_entries(path: str) -> dict[str, str]:
    """Return the files that Darknet's file names and that lie beside it: it is run in another folder."""
    folder = os.path.dirname(os.path.abspath(path))
    named = _DARKNET_ENTRY.findall(read_part(path).decode("utf-8", "replace"))
    beside = {name: os.path.join(folder, os.path.basename(entry)) for name, entry in named}
    return {name: entry for name, entry in beside.items() if os.path.isfile(entry)}


def find_class_files(listing: Listing, folders: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the files such as classes.txt in some folders, each with its names, one per line."""
    paths = (
        listing[folder].join(name)
        for folder in dict.fromkeys(folders)
        for name in _CLASSES_FILES
        if name in listing[folder].others
    )
    return {path: _lines(listing.absolute(path)) for path in paths}


def read_class_names(listing: Listing, found: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names in the files of a dataset without data.yaml, or () if there are none.

    SourceError is raised if two files differ.
    """
    first = next(iter(found), "")
    for path, names in found.items():
        if names != found[first]:
            must = f"have the names of {listing.shown(first)}"
            raise malformed(listing.shown(path), must, ", ".join(names))
    return found.get(first, ())


def _lines(path: str) -> tuple[str, ...]:
    return tuple(map(str.strip, read_text(path).rstrip().splitlines()))


def _split_names(content: Mapping[object, object]) -> list[str]:
    return split_names(name for name in content if isinstance(name, str))


def _entries(path: str, split: str, value: object) -> list[str]:
    entries: list[object] = value if isinstance(value, list) else [value]
    texts = [entry for entry in entries if is_text(entry) and "\0" not in entry]
    if not texts or len(texts) < len(entries):
        raise malformed(f"{path}, {split}", "be a path or a list of paths", [value])
    return texts


def _root(path: str, given: object, entries: Sequence[str]) -> str:
    """Return the folder that paths are relative to: the first candidate that holds one of them.

    The candidates are `path` relative to the file's folder, `path` as given, and the file's folder.
    """
    if given is not None and (not is_text(given) or "\0" in given):
        raise malformed(f"{path}, path", "be a folder", [given])
    folder = os.path.dirname(os.path.abspath(path))
    if not given:
        return folder
    candidates = [os.path.normpath(os.path.join(folder, given)), os.path.abspath(given), folder]
    return next(
        (each for each in candidates if any(os.path.exists(_resolved(each, entry)) for entry in entries)),
        candidates[0],
    )


def _resolved(root: str, entry: str) -> str:
    """Return an entry as an absolute path; where it does not exist, without the parts that lead elsewhere.

    Some exports have one `../` too many, and absolute paths may be those of another machine.
    """
    resolved = os.path.normpath(os.path.join(root, entry))
    parts = os.path.normpath(entry.replace("\\", "/")).split("/")
    if not os.path.exists(resolved) and (parts[0] in ("", "..") or "\\" in entry):
        rests = (os.path.join(root, *parts[skipped:]) for skipped in range(len(parts)))
        return next(filter(os.path.exists, rests), resolved)
    return resolved


def _classes(path: str, content: Mapping[object, object], names_file: str) -> tuple[str, ...]:
    names, count = content.get("names"), content.get("nc")
    if names_file:
        if not os.path.isfile(names_file):
            raise malformed(f"{path}, names", "be a list of names, or a file of them", names)
        names = [*_lines(names_file)]
    if count is not None and (type(count) is not int or not 1 <= count <= MOST_CLASSES):
        raise malformed(f"{path}, nc", f"be a number of classes from 1 to {MOST_CLASSES:,}", [count])
    if names is None:
        if count is None:
            raise malformed(path, "have names", ", ".join(map(str, content)))
        return tuple(f"class_{number}" for number in range(count))
    if isinstance(names, dict):
        numbered = {str(number): name for number, name in names.items()}
        try:
            names = [numbered[str(number)] for number in range(len(names))]
        except KeyError:
            must = f"be numbered from 0 to {len(names) - 1}"
            raise malformed(f"{path}, names", must, [*names]) from None
    if not isinstance(names, list) or not names or not all(map(_is_name, names)):
        raise malformed(f"{path}, names", "be a list of names", [names])
    if count is not None and count != len(names):
        raise malformed(path, f"have as many names as nc, {count}", len(names))
    return tuple(map(str, names))


def _is_name(name: object) -> bool:
    return is_text(name) or not isinstance(name, Collection)


def _keypoints(path: str, shape: object) -> tuple[int, int] | None:
    if shape is None:
        return None
    if isinstance(shape, list) and [*map(type, shape)] == [int, int]:
        points, numbers = shape
        if 1 <= points <= _MOST_POINTS and numbers in (2, 3):
            return points, numbers
    raise malformed(f"{path}, kpt_shape", "be [points, 2] or [points, 3]", [shape])


def find_named(description: YoloDescription, inner: Listing | None) -> tuple[Listing, dict[str, list[str]]]:
    """Return a listing of the folders that a description names, and the images of each split in it.

    The listing is `inner` if all of them lie in it. SourceError is raised for a split that does not exist.
    """
    for path in description.entries:
        if not (os.path.isdir(path) or (path.lower().endswith(".txt") and os.path.isfile(path))):
            must = "have splits that are folders of images, or .txt files that list them"
            raise malformed(description.file, must, path, "correct `path` or the split")
    listed = {path: _images_in(path) for path in description.lists}
    folders = {os.path.dirname(image) for images in listed.values() for image in images}
    folders |= {*description.entries} - {*listed}
    if inner is None or any(inner.place_of(folder) is None for folder in folders):
        datasets = {each for folder in folders for each in _dataset_of(folder, description.root)}
        is_root = all(f"{each}/".startswith(os.path.join(description.root, "")) for each in datasets)
        root = description.root if is_root else os.path.commonpath(datasets)
        files = (os.path.abspath(path) for path in (description.file, description.names_file) if path)
        inner = Listing.covering(root, datasets, [*files, *listed])
    places = {folder: inner.place_of(folder) or "" for folder in folders}

    def images_of(entry: str) -> Iterator[str]:
        if entry in places:
            yield from inner.images_below(places[entry])
        for folder, base in map(os.path.split, listed.get(entry, ())):
            yield inner[places[folder]].join(base)

    return inner, {
        split: sorted({image for entry in entries for image in images_of(entry)})
        for split, entries in description.splits.items()
    }


def _images_in(entry: str) -> list[str]:
    """Return the absolute paths of the images that a .txt file lists."""
    lines = [*map(str.strip, read_text(entry).split("\n"))]
    for number, line in enumerate(lines, 1):
        if line and not is_image(line):
            must = "be the path of an image, such as images/a.jpg"
            raise malformed(f"{entry}, line {number}", must, repr(line))
    lines = [os.path.normpath(line.replace("\\", "/")) for line in lines if line]
    folder, skipped = _base_of(os.path.dirname(entry), lines[0]) if lines else ("", 0)
    if skipped:
        lines = ["/".join(line.split("/")[skipped:]) for line in lines]
    return [os.path.normpath(os.path.join(folder, line)) for line in lines]


def _base_of(folder: str, line: str) -> tuple[str, int]:
    """Return the folder to which the lines of a list are relative, and their parts that are not there.

    Darknet is run in a folder above that of the list, and lists may come from another machine. The last
    folder of a line is there, because images of two splits may have one name.
    """
    above = [folder]
    while len(above) <= _MOST_ABOVE and os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    parts = line.split("/")
    for skipped in range(max(1, len(parts) - 1)):
        for base in above:
            if os.path.isfile(os.path.join(base, *parts[skipped:]) if skipped else os.path.join(base, line)):
                return base, skipped
    return folder, 0


def _dataset_of(folder: str, root: str) -> list[str]:
    """Return the folder above `images`, or above a split of the described folder; or those of the files."""
    before, images, _ = f"{folder}/".rpartition("/images/")
    dataset = before if images else folder
    is_split = os.path.basename(dataset).lower() in SPLITS
    if is_split and f"{os.path.dirname(dataset)}/".startswith(os.path.join(root, "")):
        dataset = os.path.dirname(dataset)
    if dataset.strip("/"):
        return [dataset]
    beside = [f"/{parallel_to(folder, name)}" for name in ("labels", "masks") if images]
    return [folder, *filter(os.path.isdir, beside)]
