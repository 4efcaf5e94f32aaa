"""The folders and files of Pascal VOC datasets, and which of them belong together: by their stems."""

from __future__ import annotations

from typing import NamedTuple

from fastload.sources.listing import Listing
from fastload.sources.words import FilesByStem, by_stem, one_of_each

IMAGES, BOXES, SETS = "JPEGImages", "Annotations", "ImageSets"
MASKS, OBJECT_MASKS = "SegmentationClass", "SegmentationObject"


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


def masks_in(listing: Listing, path: str) -> dict[str, str]:
    """Return the masks below a folder by stem: images, GIF among them."""
    files = (
        folder.join(name)
        for folder in listing.below(path)
        for name in (*folder.images, *folder.others_with(".gif"))
    )
    return one_of_each(by_stem(files, path), "mask of its image", listing.shown)
