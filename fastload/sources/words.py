"""Words in names of folders and files that say what they hold: images, annotations, or views of a scene."""

from __future__ import annotations

import re

_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z_ .-]+")


def words_of(name: str) -> list[str]:
    """Return the words in a name, in lower case.

    >>> words_of("JPEGImages"), words_of("train_masks2")
    (['jpeg', 'images'], ['train', 'masks', '2'])
    """
    return [word.lower() for word in _WORD.findall(name)]


def is_result(name: str) -> bool:
    """Return True if a word in a name is that of masks, depth or another result of an image."""
    return not {*words_of(name)}.isdisjoint(RESULTS | ANNOTATION_PARTS)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IMAGE_PARTS = _words(
    "image images img imgs jpegimages photos pictures frames leftimg8bit "
    "jpg jpgs jpeg jpegs png pngs tif tiff"
)
"""The images of a dataset, whatever lies beside them."""

_MASK_PARTS = _words(
    "masks labels anno annos annot annots anns annotation annotations segmentation segmentations "
    "gt gts groundtruth groundtruths trimaps"
)

ANNOTATION_PARTS = _MASK_PARTS | _words("labeltxt bbox bboxes calib geojson gtfine gtcoarse")
"""Annotations of images, whatever lies beside them."""

NUMBERED_PARTS = _words("label mask")
"""Annotations if a number follows, as in KITTI's `label_2`; otherwise, a class may have the name."""

IMAGE_WORDS = IMAGE_PARTS | _words("photo picture rgb original originals input inputs x")
"""The images of a dataset, if a folder beside them is named after masks."""

MASK_WORDS = _MASK_PARTS | _words("mask label ann seg segs trimap y")
"""Masks, if a folder beside them holds images of the same names."""

RESULTS = _words(
    "mask label labeled annotated seg segm segim depth disp disparity normals flow edges matte alpha map "
    "semantic instance trans transmission depthcrop maskcrop synthdepth"
)
"""Results of an image. A class may have such a name, too: only folders that all have one are pairs."""

VIEWS = _words(
    "rgb color colors thermal ir nir infrared visible left right input inputs output outputs noisy clean "
    "blur blurred sharp hazy foggy clear rain rainy norain hr lr high low before after top ortho raw stills "
    "original source target targets albedo shading reference"
)
"""Images of one scene, with the same restriction as for `RESULTS`."""

MASK_ENDING = re.compile(
    r"(.+?)[_ .-](masks?|seg(mentation)?s?|labels?|label_?ids|anno(t(ation)?)?s?|gt|ground[_-]?truth|matte"
    r"|trimap)([_ .-]?[0-9]+)?",
    re.IGNORECASE,
)
"""The name of a mask without its suffix; the first group is that of its image, or begins it."""
