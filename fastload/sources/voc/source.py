"""Pascal VOC datasets: JPEGImages with Annotations, masks and lists of splits; or images and XML files alone.

Without lists, all images are packed. The classes are numbered in the order of their names, as in VOC itself.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fastload.shards.schema import Field
from fastload.sources.file_source import AnnotatedFiles
from fastload.sources.files import list_files
from fastload.sources.listing import Folder, Listing
from fastload.sources.malformed import in_quotes, malformed, pack_command
from fastload.sources.protocol import Claim, LeftOutReason, Reading
from fastload.sources.sniffing import holds_boxes
from fastload.sources.splits import SPLITS, by_split, require_plain_splits, split_names, split_words
from fastload.sources.voc.lists import (
    BOXES,
    IMAGES,
    MASKS,
    OBJECT_MASKS,
    SETS,
    Lists,
    read_lists,
    read_lists_beside,
)
from fastload.sources.voc.rows import VocReader, class_names
from fastload.sources.words import MASK_SUFFIXES, FilesByStem, by_stem, one_of_each

_KIT_NAME = "VOC"  # of VOCdevkit, VOC2012, VOCtrainval_11-May-2012
_IMAGE_FOLDER = re.compile(r"(jpeg)?images?|imgs?|photos|pictures", re.IGNORECASE)
_TRAIN_AND_VAL = re.compile("train_?val", re.IGNORECASE)
_SAMPLED = 32
_MOST_FOLDERS = 64  # of classes, for example, each of which would be compared with each other one

_IN_NO_SPLIT: LeftOutReason = ("of an image in no split", True)
_ABOUT_VOC: LeftOutReason = ("part of VOC's development kit", True)

_OF_VOC = re.compile(r"20\d\d_\d{6}")  # VOC 2012 has images of each task, and no list names them all
_DEVKIT = re.compile(r"(.*/)?(VOCcode/.+|[^/]+\.m|devkit_doc\.\w+)")


class XmlFolders(NamedTuple):
    """The folder of images and the folder of their XML files; the same if they lie beside each other."""

    images: str
    boxes: str

    def images_in(self, listing: Listing) -> FilesByStem:
        """Return the images by stem."""
        # Images directly in a folder lie beside the XML files in it, or in a folder inside.
        is_inside = f"{self.boxes}/".startswith(listing[self.images].join(""))
        is_direct = is_inside and (self.images != self.boxes or self._is_of_files(listing))
        folders = [listing[self.images]] if is_direct else listing.below(self.images)
        return by_stem((folder.join(name) for folder in folders for name in folder.images), self.images)

    def xml_in(self, listing: Listing) -> FilesByStem:
        """Return the XML files by stem."""
        is_direct = self.images == self.boxes and self._is_of_files(listing)
        folders = [listing[self.boxes]] if is_direct else listing.below(self.boxes)
        return by_stem((each.join(name) for each in folders for name in each.others_with(".xml")), self.boxes)

    def images_of(self, listing: Listing) -> dict[str, str]:
        """Return the image of each stem; raise SourceError if a stem has two."""
        return one_of_each(self.images_in(listing), "image of its name", listing.shown)

    def xml_of(self, listing: Listing) -> dict[str, str]:
        """Return the XML file of each stem; raise SourceError if a stem has two."""
        return one_of_each(self.xml_in(listing), "annotation of its image", listing.shown)

    def _is_of_files(self, listing: Listing) -> bool:
        return bool(listing[self.images].images)


class _Split(NamedTuple):
    """The images of a split, and the XML files and masks that images may have; each by stem."""

    place: XmlFolders
    images: Mapping[str, str]
    xml: Mapping[str, str]
    masks: Mapping[str, str]


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder of VOC's own form, or images and their XML files, also by split."""
    if kits := _kits(listing):
        evidence = f"{listing[kits[0]].join(IMAGES)} and its annotations"
        return Claim(evidence, lambda: _read_kit(listing, kits))
    if not any(map(_has_xml, listing.folders.values())):
        return None
    names = split_names(listing.top.visible)
    found: dict[str, list[XmlFolders]] = _named_splits(listing)
    found = found or {"": [*_folders_in(listing, "")]}
    if not any(found.values()):
        found = {name: places for name in names if (places := [*_folders_in(listing, name)])}
    if not found:
        return None
    first = next(iter(found.values()))[0]
    evidence = f"XML files of VOC in {listing.shown(first.boxes)}"
    return Claim(evidence, lambda: _read_folders(listing, names, found))


def _kits(listing: Listing) -> list[str]:
    """Return the folders with JPEGImages and annotations: those named VOC…, or that with most images."""
    found = []
    for folder in listing.visible:
        kit, _, name = folder.path.rpartition("/")
        if name == IMAGES and kit.rpartition("/")[2].lower() not in SPLITS:
            boxes, masks = (f"{kit}/{each}".lstrip("/") for each in (BOXES, MASKS))
            if XmlFolders("", boxes).xml_in(listing) or _masks_in(listing, masks):
                found.append(kit)
    named = [kit for kit in found if all(part.startswith(_KIT_NAME) for part in kit.split("/") if part)]
    count = sum(len(each.images) for each in listing.visible)
    return sorted(named or [kit for kit in found if 2 * len(listing.images_below(kit)) > count])


def _folders_in(listing: Listing, path: str) -> Iterator[XmlFolders]:
    """Yield the folders in which images and XML files of VOC form pairs: here, or in folders here."""
    here = listing[path]
    inner = [here.join(name) for name in here.visible if name.lower() not in SPLITS][:_MOST_FOLDERS]
    images = {each: found for each in inner if (found := _bearing(listing, each, lambda at: bool(at.images)))}
    named = [found for each, found in images.items() if _IMAGE_FOLDER.fullmatch(each.rpartition("/")[2])]
    chosen = named or [*images.values()]
    of_xml = filter(None, (_bearing(listing, each, _has_xml) for each in inner))
    # XML files that lie beside images belong to these alone.
    boxes = [each for each in of_xml if not any(_has_xml(at) and at.images for at in listing.below(each))]
    beside = chosen[0] if len(chosen) == 1 and not here.images else path
    places = [XmlFolders(path, each) for each in boxes]
    if here.images or not split_names(here.visible):
        places.append(XmlFolders(beside, beside))
    places += itertools.starmap(XmlFolders, itertools.product(chosen, boxes))
    yield from (each for each in places if _are_pairs(listing, each))


def _named_splits(listing: Listing) -> dict[str, list[XmlFolders]]:
    """Return the folders of images named after splits, if a folder beside them holds the XML files."""
    names = listing.top.visible[:_MOST_FOLDERS]
    named = {
        name: name if name.lower() in SPLITS else words[0][0]
        for name in names
        if (words := split_words(_TRAIN_AND_VAL.sub("train", name)))
    }
    boxes = [found for name in names if (found := _bearing(listing, name, _has_xml))]
    if len(named) < 2 or len(boxes) != 1:
        return {}
    places = {
        split: XmlFolders(images, boxes[0])
        for name, split in named.items()
        if (images := _bearing(listing, name, lambda at: bool(at.images)))
    }
    stems = [stem for place in places.values() for stem in place.images_in(listing)]
    is_clear = len(places) == len(named) and len({*stems}) == len(stems)
    are_pairs = is_clear and all(_are_pairs(listing, place, of_all=False) for place in places.values())
    return {split: [place] for split, place in places.items()} if are_pairs else {}


def _has_xml(folder: Folder) -> bool:
    return bool(folder.others and folder.others_with(".xml"))


def _bearing(listing: Listing, path: str, bears: Callable[[Folder], bool]) -> str | None:
    """Return the folder at or below a path that bears all of its files of a kind, at least by splits."""
    folder = listing[path]
    while not bears(folder):
        bearing = [each for each in folder.visible if any(map(bears, listing.below(folder.join(each))))]
        if len(bearing) != 1 or split_names(bearing):
            return folder.path if bearing else None
        folder = listing[folder.join(bearing[0])]
    return folder.path


def _are_pairs(listing: Listing, place: XmlFolders, *, of_all: bool = True) -> bool:
    """Return True if half of the XML files form pairs, or half of the images if not `of_all` are there."""
    xml = place.xml_in(listing)
    images = place.images_in(listing) if xml else {}
    paired = [path for stem, paths in xml.items() if stem in images for path in paths]
    least = len(xml) if of_all and place.images != place.boxes else max(1, len(images))
    heads = ((path, listing.head(path)) for path in paired[:_SAMPLED])
    return 2 * len(paired) >= least and any(holds_boxes(*each) for each in heads)


def _read_kit(listing: Listing, kits: list[str]) -> Reading:
    """List the splits of the only folder with JPEGImages, by its lists."""
    if len(kits) > 1:
        shown = [*map(listing.shown, kits)]
        step = "pack each of them: " + ", ".join(map(pack_command, shown[:2]))
        raise malformed(listing.name, "hold one VOC dataset", " and ".join(shown), step)
    [root] = kits
    kit = listing.view(root)
    place = XmlFolders(IMAGES, BOXES)
    images = place.images_in(kit)
    stems = {path: stem for stem, paths in images.items() for path in paths}
    xml, masks, object_masks = place.xml_of(kit), _masks_in(kit, MASKS), _masks_in(kit, OBJECT_MASKS)
    lists = read_lists(kit, images, has_boxes=bool(xml))
    splits = lists.splits or {"": [*place.images_of(kit).values()]}
    by_stem = {split: {stems[path]: path for path in listed} for split, listed in splits.items()}
    found = {split: _Split(place, listed, xml, masks) for split, listed in by_stem.items()}
    # Masks of objects are no field of records: they are kept with the annotation files.
    kept = [object_masks[stem] for listed in by_stem.values() for stem in listed if stem in object_masks]
    clutter = {stem for stem in images if stem in lists.elsewhere or _OF_VOC.fullmatch(stem)}
    unlisted = [path for stem in clutter for path in (*images[stem], xml.get(stem, ""))]
    reasons = {**lists.reasons, **dict.fromkeys(unlisted, _IN_NO_SPLIT)}
    outside = (folder.join(name) for folder in listing.folders.values() for name in folder.others)
    all_reasons = {path: _ABOUT_VOC for path in outside if _DEVKIT.fullmatch(path)}
    all_reasons |= {listing[root].join(path): reason for path, reason in reasons.items()}
    read = map(listing[root].join, (*lists.read, *kept))
    return Reading(_sources(listing.name, kit, found), [*read], all_reasons, [*_warnings(kit, lists)])


def _read_folders(
    listing: Listing, names: Sequence[str], claimed: Mapping[str, Sequence[XmlFolders]]
) -> Reading:
    """List the images in the only folders of each split, "" without splits, of which `names` are all."""
    for each in claimed.values():
        if len(each) > 1:
            must, paths = "have the XML files of its images in one folder", [place.boxes for place in each]
            if len({*paths}) == 1:
                must = "have its images in one folder, or in folders named after train, val and test"
                paths = [place.images for place in each]
            got = in_quotes([*map(listing.shown, paths)])
            raise malformed(listing.name, must, got, "move the wrong ones elsewhere")
    found = {name: each[0] for name, each in claimed.items()}
    places = _inner_splits(listing, found[""]) if "" in found else dict(found)
    images = {name: each.images_of(listing) for name, each in places.items()}
    lists = read_lists_beside(listing, found[""].images_in(listing)) if [*places] == [""] else Lists()
    if lists.splits:
        stems = {path: stem for stem, path in images[""].items()}
        images = {split: {stems[path]: path for path in listed} for split, listed in lists.splits.items()}
        places = dict.fromkeys(images, places[""])
    splits = {
        name: _Split(places[name], paths, places[name].xml_of(listing), {}) for name, paths in images.items()
    }
    warnings = [
        f"{listing.name}: {name!r} has no annotations, and is left out"
        for name in names
        if name not in places and "" not in found
    ]
    sources = _sources(listing.name, listing, by_split(listing.name, splits))
    return Reading(sources, lists.read, warnings=[*warnings, *_warnings(listing, lists)])


def _inner_splits(listing: Listing, place: XmlFolders) -> dict[str, XmlFolders]:
    """Return the folders of the splits within those of images and annotations, or these folders."""
    top, boxes = listing[place.images], listing[place.boxes]
    names = [] if top.images else split_names(top.visible)
    if not names:
        require_plain_splits(listing, top)
    return {name: XmlFolders(top.join(name), boxes.join(name)) for name in names} or {"": place}


def _sources(name: str, listing: Listing, splits: Mapping[str, _Split]) -> dict[str, AnnotatedFiles]:
    root = listing.root
    texts, masks = {}, {}
    for split, found in splits.items():
        expected = os.path.join(found.place.boxes, "{}.xml").format
        stems = found.images if found.xml else ()
        texts[split] = list_files(root, (found.xml.get(stem, expected(stem)) for stem in stems))
        if found.masks:
            masks[split] = list_files(root, (found.masks.get(stem, "") for stem in found.images))
    readable = (text for files in texts.values() for text in files.readable())
    classes = sorted({each for text in readable for each in class_names(text)})
    reader = VocReader({each: label for label, each in enumerate(classes)})
    return {
        split: AnnotatedFiles(
            kind="voc",
            name=name,
            classes=tuple(classes),
            fields=(*(reader.fields() if found.xml else ()), *[Field.mask()] * bool(found.masks)),
            details=found.place._asdict(),
            files=list_files(root, found.images.values()),
            values={"mask": masks[split]} if split in masks else {},
            texts=texts[split],
            reader=reader if found.xml else None,
            needs_masks=not found.xml,
        )
        for split, found in splits.items()
    }


def _warnings(kit: Listing, lists: Lists) -> Iterator[str]:
    """Yield which lists decide, if there are lists of several tasks."""
    if lists.note:
        yield f"{kit.name}: {lists.note}"
    with_lists = (folder.path for folder in kit.below(SETS) if folder.others_with(".txt"))
    others = ", ".join(os.path.basename(path) for path in with_lists if path != lists.folder)
    if lists.folder and others:
        yield f"{kit.name}: the lists in {lists.folder} decide the splits; those in {others} are left out"


def _masks_in(listing: Listing, path: str) -> dict[str, str]:
    """Return the masks below a folder by stem: images, GIF among them."""
    files = by_stem(listing.images_below(path, *MASK_SUFFIXES), path)
    return one_of_each(files, "mask of its image", listing.shown)
