"""ObjectMixUp, ObjectCutMix and CopyPaste: a second image mixed into one with objects, as Ultralytics does.

MixUp and CutMix of `fastload.transforms` are torchvision's, of batches with class labels; hence other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2
from fastload.transforms import options
from fastload.transforms.annotations import Annotations, joined
from fastload.transforms.compose import AnyTransform, flattened
from fastload.transforms.draws import Draws, integers, seeds
from fastload.transforms.mixing.moved_objects import cut_to_image, resampled, shares_covered
from fastload.transforms.scenes import Indices, Scene, SceneSteps, SceneTransform
from fastload.transforms.transform import Parameters, Row, Sizes

# The parameters of MixUp's beta distribution, in Ultralytics.
_ALPHA = 32.0

# The share of an object that a rectangle must hold to bring it along, with and without polygons, and the
# share of any object that a pasted one may hide: Ultralytics' CutMix and CopyPaste.
_LEAST_OF_OUTLINE, _LEAST_OF_BOX, _MOST_HIDDEN = 0.01, 0.1, 0.3


class _SecondImage(SceneTransform):
    """Base class of transforms that draw, for a share `p` of images, a second one from the dataset.

    The parameters are numbers for the decision to draw an image, for its index and for a seed, and those of
    `pre_transform`, which is applied to the second image.
    """

    needs_dataset = True

    def __init__(self, pre_transform: AnyTransform | None = None, p: float = 0.0) -> None:
        self.p = options.to_probability(p)
        self.pre_transform = pre_transform
        steps = flattened(pre_transform)
        scene_steps = [step for step in steps if isinstance(step, SceneTransform)]
        is_valid = len(scene_steps) == len(steps)
        rule = "pre_transform must consist of LetterBox, Mosaic, ObjectPerspective, CopyPaste and the like"
        options.require(is_valid, rule, pre_transform)
        self._steps = SceneSteps(scene_steps)
        self.width = 3 + self._steps.width
        self.needed = 1 + self._steps.needed if self.p else 0

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        numbers = draws.uniform(3)
        numbers[:, 2] = seeds(numbers[:, 2])
        return np.concatenate((numbers, self._steps.draw(draws.at(0), sizes)), axis=1)

    def others(self, parameters: Parameters, positions: Indices, count: int) -> Indices:
        if not self.needed:
            return super().others(parameters, positions, count)
        second = integers(parameters[:, 1], count)
        indices = np.column_stack((second, self._steps.others(parameters[:, 3:], second, count)))
        return np.where(parameters[:, :1] < self.p, indices, positions[:, None])

    def compose(self, scene: Scene, parameters: Row, others: Sequence[Scene]) -> Scene:
        if parameters[0] >= self.p:
            return scene
        second = self._steps.compose(others[0], parameters[3:], others[1:])
        if second.size != scene.size:
            raise OptionError(
                f"{type(self).__name__} must mix images of one size, got {scene.size} and {second.size}: "
                "give it the transforms before it as pre_transform"
            )
        return self.mixed(scene, second, np.random.default_rng(int(parameters[2])))

    def mixed(self, scene: Scene, second: Scene, rng: np.random.Generator) -> Scene:
        """Return the scene with the second mixed in."""
        raise NotImplementedError


class ObjectMixUp(_SecondImage):
    """Blends an image with another of the dataset, and takes the objects of both: Ultralytics' MixUp.

    Args:
        pre_transform: Applied to the other image; usually the transforms before this one.
        p: The probability.
    """

    def mixed(self, scene: Scene, second: Scene, rng: np.random.Generator) -> Scene:
        return blended(scene, second, float(rng.beta(_ALPHA, _ALPHA)))


class ObjectCutMix(_SecondImage):
    """Replaces a rectangle without objects by that of another image of the dataset: Ultralytics' CutMix.

    Args:
        pre_transform: Applied to the other image; usually the transforms before this one.
        p: The probability.
        beta: Both parameters of the beta distribution of the rectangle's share.
        num_areas: The number of rectangles tried.
    """

    def __init__(
        self, pre_transform: AnyTransform | None = None, p: float = 0.0, beta: float = 1.0, num_areas: int = 3
    ) -> None:
        super().__init__(pre_transform, p)
        self.beta = options.to_number(beta, "beta", options.ABOVE_0)
        self.num_areas = options.to_whole(num_areas, "num_areas", 1)

    def mixed(self, scene: Scene, second: Scene, rng: np.random.Generator) -> Scene:
        height, width = scene.size
        sides = np.array((width, height))
        areas = np.empty((self.num_areas, 4), np.float32)
        for area in areas:
            half = (sides * np.sqrt(1.0 - rng.beta(self.beta, self.beta))).astype(int) // 2
            centre = rng.integers(0, sides)
            area[:2], area[2:] = np.clip(centre - half, 0, sides), np.clip(centre + half, 0, sides)
        free = areas[~shares_covered(areas, scene.objects.boxes).any(axis=1)]
        return pasted(scene, second, free[rng.integers(len(free))]) if len(free) else scene


class CopyPaste(_SecondImage):
    """Copies objects with polygons to where they hide little of others, as Ultralytics does.

    Args:
        pre_transform: Applied to the other image, with mode "mixup".
        p: The share of objects copied; with mode "mixup", also the probability.
        mode: Copy from the image's mirror image, `"flip"`, or from another image, `"mixup"`.
    """

    def __init__(
        self,
        pre_transform: AnyTransform | None = None,
        p: float = 0.5,
        mode: Literal["flip", "mixup"] = "flip",
    ) -> None:
        options.require(mode in ("flip", "mixup"), 'mode must be "flip" or "mixup"', mode)
        super().__init__(pre_transform if mode == "mixup" else None, p)
        self.mode = mode
        self.needed = self.needed if mode == "mixup" else 0

    def compose(self, scene: Scene, parameters: Row, others: Sequence[Scene]) -> Scene:
        if not scene.objects.polygons or not self.p:
            return scene
        if self.mode == "mixup":
            return super().compose(scene, parameters, others)
        pixels = scene.pixels()
        mirrored = scene.objects.flipped(1)
        chosen = self._chosen(mirrored, scene.objects)
        return _with_copies(scene, pixels, mirrored, cv2.flip(pixels, 1), chosen) if len(chosen) else scene

    def mixed(self, scene: Scene, second: Scene, rng: np.random.Generator) -> Scene:
        chosen = self._chosen(second.objects, scene.objects)
        if not len(chosen):
            return scene
        return _with_copies(scene, scene.pixels(), second.objects, second.pixels(), chosen)

    def _chosen(self, candidates: Annotations, objects: Annotations) -> NDArray[np.int64]:
        """Return the objects to copy: those that hide least first."""
        hidden = shares_covered(candidates.boxes, objects.boxes).max(axis=1, initial=0)
        fitting = np.flatnonzero(hidden < _MOST_HIDDEN)
        fitting = fitting[np.argsort(hidden[fitting])]
        return fitting[: round(self.p * len(fitting))]


def blended(scene: Scene, second: Scene, share: float) -> Scene:
    """Return both scenes blended, the first with a given share."""
    pixels = scene.pixels()
    # Rounded down, as Ultralytics does.
    cv2.addWeighted(pixels, share, second.pixels(), 1 - share, -0.4999, dst=pixels)
    # Classes cannot be blended: those of the image that is seen more.
    mask = scene.objects.mask if share >= 0.5 or second.objects.mask is None else second.objects.mask
    objects = joined((scene.objects, second.objects), scene.size, mask)
    return scene.with_pixels(pixels, objects)


def pasted(scene: Scene, second: Scene, area: NDArray[np.float32]) -> Scene:
    """Return the scene with a rectangle, x1 y1 x2 y2, of the second; unchanged if that shows no object."""
    objects = second.objects
    least = _LEAST_OF_BOX if scene.objects.polygons is None else _LEAST_OF_OUTLINE
    objects = objects.chosen(shares_covered(area[None], objects.boxes)[0] >= least)
    if not len(objects) and scene.objects.mask is None:
        return scene
    x1, y1, x2, y2 = map(int, area)
    mask, other = scene.objects.mask, second.objects.mask
    if mask is not None and other is not None:
        mask = mask.copy()
        mask[y1:y2, x1:x2] = other[y1:y2, x1:x2]
    objects = cut_to_image(objects.cropped(y1, x1, y2 - y1, x2 - x1))
    objects = objects.cropped(-y1, -x1, *scene.size)
    pixels = scene.pixels()
    pixels[y1:y2, x1:x2] = second.pixels()[y1:y2, x1:x2]
    objects = joined((scene.objects, objects), scene.size, mask)
    return scene.with_pixels(pixels, objects)


def _with_copies(
    scene: Scene, pixels: Pixels, others: Annotations, source: Pixels, chosen: NDArray[np.int64]
) -> Scene:
    covered = np.zeros(scene.size, np.uint8)
    for row in chosen.tolist():
        for ring in (others.polygons or [])[row]:
            # Rounded down to whole pixels, which moves edges less if there are many points.
            points = resampled(ring).astype(np.float32).astype(np.int32)
            cv2.drawContours(covered, [points], -1, 1, cv2.FILLED)
    cv2.copyTo(source, covered, pixels)
    mask = scene.objects.mask
    if mask is not None and others.mask is not None:
        mask = np.where(covered, others.mask, mask)
    objects = joined((scene.objects, others.chosen(chosen)), scene.size, mask)
    return scene.with_pixels(pixels, objects)
