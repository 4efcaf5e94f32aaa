"""Mosaic, ObjectPerspective, LetterBox and RandomHSV: Ultralytics' augmentation of one image.

Parameters and results are those of Ultralytics 8.4's Mosaic, RandomPerspective, LetterBox and RandomHSV;
the page "Transforms" of the documentation describes the differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size
from fastload.images.canvas import GREY, Canvas, Matrix, Placement
from fastload.images.deferred import DeferredImage
from fastload.images.hsv import HsvChange
from fastload.images.opencv import cv2
from fastload.transforms import options
from fastload.transforms.draws import Draws, integers
from fastload.transforms.mixing.moved_objects import OUTSIDE, mask_placer, on_canvas, through_matrix
from fastload.transforms.scenes import Indices, Scene, SceneTransform
from fastload.transforms.transform import Parameters, Row, Sizes


class Mosaic(SceneTransform):
    """Joins each image with 3 others of the dataset, on a canvas of twice `imgsz`.

    Each image is resized so that its longer side is `imgsz`; images that get no mosaic are, too. It must be
    the first transform; ObjectPerspective after it makes the canvas an image of `imgsz`.

    Args:
        imgsz: The length of an image's longer side.
        p: The probability of a mosaic.
        among: Take the other images from all of the `"dataset"`, or from the same `"batch"`, whose images are
            then decoded only once each: faster, as with Ultralytics' buffer of recent images.
        exact: Make the same pixels as Ultralytics, at half the speed.
    """

    needs_dataset = True
    needed = 3
    width = 3 + needed

    def __init__(
        self,
        imgsz: int = 640,
        p: float = 1.0,
        *,
        among: Literal["dataset", "batch"] = "dataset",
        exact: bool = False,
    ) -> None:
        self.imgsz = options.to_whole(imgsz, "imgsz", 2)
        self.p = options.to_probability(p)
        options.require(among in ("dataset", "batch"), 'among must be "dataset" or "batch"', among)
        self.among = among
        self.exact = exact

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        return draws.uniform(self.width)

    def others(self, parameters: Parameters, positions: Indices, count: int) -> Indices:
        if self.among == "batch" and len(positions) > 1:
            found = positions[integers(parameters[:, 3:], len(positions))]
        else:
            found = integers(parameters[:, 3:], count)
        return np.where(parameters[:, :1] < self.p, found, positions[:, None])

    def compose(self, scene: Scene, parameters: Row, others: Sequence[Scene]) -> Scene:
        if not scene.is_original:
            raise OptionError("Mosaic must be the first transform of a Compose: move it there")
        scenes, shape = [scene], loaded_size(scene.size, self.imgsz)
        placements: tuple[Placement, ...] = (Placement(0, scene.size, shape),)
        if parameters[0] < self.p:
            side, border = 2 * self.imgsz, -(-self.imgsz // 2)
            x, y = (int(border + (side - 2 * border) * each) for each in parameters[1:3])
            scenes, shape = [scene, *others], (side, side)
            placements = mosaic_of_4([each.size for each in scenes], self.imgsz, (x, y))
        canvas = Canvas(shape, placements, None, shape, is_exact=self.exact)
        image = DeferredImage.on(canvas, [each.image for each in scenes])
        return Scene(image, on_canvas(canvas, [each.objects for each in scenes]), self.exact)


class ObjectPerspective(SceneTransform):
    """Rotates, scales, shears and shifts an image with its objects: Ultralytics' RandomPerspective.

    Like Ultralytics, it removes objects of which too little is left.

    Args:
        degrees: The largest rotation.
        translate: The largest shift, as a share of the size.
        scale: The range of the scale: 1 ± `scale`, or (least, most).
        shear: The largest shear, in degrees.
        perspective: The largest perspective, 0 to 0.001.
        size: The (width, height) of the result, in Ultralytics' order; None for the image's own.
    """

    width = 8

    def __init__(
        self,
        degrees: float = 0.0,
        translate: float = 0.1,
        scale: float | tuple[float, float] = 0.5,
        shear: float = 0.0,
        perspective: float = 0.0,
        size: tuple[int, int] | None = None,
    ) -> None:
        self.degrees = options.to_number(degrees, "degrees")
        self.translate = options.to_number(translate, "translate")
        self.scale = scale
        self._scales = options.to_span(scale, "scale", 1.0, 0.0)
        self.shear = options.to_number(shear, "shear", 0, 89)
        self.perspective = options.to_number(perspective, "perspective", 0, 1)
        self.size = None if size is None else options.to_size(size)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        low, high = self._scales
        spans = np.array((*(self.perspective,) * 2, self.degrees, (high - low) / 2, *(self.shear,) * 2))
        spans = np.concatenate((spans, (self.translate,) * 2))
        middles = np.array((0, 0, 0, (high + low) / 2, 0, 0, 0.5, 0.5))
        return middles + spans * (2 * draws.uniform(8) - 1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        return sizes if self.size is None else np.tile(np.array(self.size[::-1]), (len(sizes), 1))

    def compose(self, scene: Scene, parameters: Row, others: Sequence[Scene]) -> Scene:
        output = scene.size if self.size is None else (self.size[1], self.size[0])
        tilt0, tilt1, angle, scale, *shears, x, y = parameters
        matrix = perspective_matrix(scene.size, output, angle, scale, shears, (x, y), (tilt0, tilt1))
        image = scene.image.warped(matrix, output, scene.is_exact)
        return Scene(image, through_matrix(scene.objects, matrix, output, scale), scene.is_exact)


class LetterBox(SceneTransform):
    """Resizes an image to fit into a size and pads the rest, as Ultralytics' LetterBox does.

    Args:
        new_shape: The size, (height, width) or one number.
        auto: Pad each side only to the next multiple of `stride`.
        scale_fill: Stretch the image to the full size.
        scaleup: Also enlarge small images.
        center: Pad on all sides, otherwise only on the right and at the bottom.
        stride: See `auto`.
        padding_value: The level of the padding.
    """

    def __init__(
        self,
        new_shape: int | tuple[int, int] = (640, 640),
        auto: bool = False,
        scale_fill: bool = False,
        scaleup: bool = True,
        center: bool = True,
        stride: int = 32,
        padding_value: int = GREY,
    ) -> None:
        self.new_shape = options.to_size(new_shape, "new_shape")
        self.auto = auto
        self.scale_fill = scale_fill
        self.scaleup = scaleup
        self.center = center
        self.stride = options.to_whole(stride, "stride", 1)
        self.padding_value = options.to_whole(padding_value, "padding_value", 0, 255)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        return np.array([self._canvas((height, width)).output for height, width in sizes.tolist()])

    def compose(self, scene: Scene, parameters: Row, others: Sequence[Scene]) -> Scene:
        canvas = replace(self._canvas(scene.size), is_exact=scene.is_exact)
        (height, width), place = scene.size, canvas.placements[0]
        ratio = min(self.new_shape[0] / height, self.new_shape[1] / width)
        # As in Ultralytics, the factors are those before the sides are rounded to whole pixels.
        factors = (ratio, ratio) if self.scaleup else (min(ratio, 1.0),) * 2
        if self.scale_fill and not self.auto:
            factors = place.size[1] / width, place.size[0] / height
        move_mask = mask_placer(place, canvas.size)
        shifts = place.left, place.top
        objects = scene.objects.rescaled(factors, shifts, canvas.size, move_mask, OUTSIDE)
        return Scene(DeferredImage.on(canvas, [scene.image]), objects, scene.is_exact)

    def _canvas(self, size: Size) -> Canvas:
        height, width = self.new_shape
        ratio = min(height / size[0], width / size[1])
        ratio = ratio if self.scaleup else min(ratio, 1.0)
        inner = max(round(size[0] * ratio), 1), max(round(size[1] * ratio), 1)
        rest = [height - inner[0], width - inner[1]]
        if self.auto:
            rest = [each % self.stride for each in rest]
        elif self.scale_fill:
            rest, inner = [0, 0], self.new_shape
        half = [each / 2 if self.center else each for each in rest]
        top, left = (round(each - 0.1) if self.center else 0 for each in half)
        bottom, right = (round(each + 0.1) for each in half)
        outer = inner[0] + top + bottom, inner[1] + left + right
        return Canvas(outer, (Placement(0, size, inner, left, top),), None, outer, fill=self.padding_value)


class RandomHSV(SceneTransform):
    """Changes hue, saturation and value by random gains of at most `hgain`, `sgain` and `vgain`."""

    width = 3

    def __init__(self, hgain: float = 0.5, sgain: float = 0.5, vgain: float = 0.5) -> None:
        self.hgain = options.to_number(hgain, "hgain", 0, 1)
        self.sgain = options.to_number(sgain, "sgain", 0, 1)
        self.vgain = options.to_number(vgain, "vgain", 0, 1)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        return (2 * draws.uniform(3) - 1) * (self.hgain, self.sgain, self.vgain)

    def compose(self, scene: Scene, parameters: Row, others: Sequence[Scene]) -> Scene:
        if not any(parameters):
            return scene
        change = HsvChange.of(parameters)
        return replace(scene, image=scene.image.changed(change), is_original=False)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        return super().apply(image, parameters) if image.shape[2] == 3 else image


def loaded_size(size: Size, imgsz: int) -> Size:
    """Return the size to which Ultralytics resizes an image: the longer side becomes `imgsz`."""
    height, width = size
    ratio = imgsz / max(size)
    if ratio == 1:
        return size
    return min(math.ceil(height * ratio), imgsz), min(math.ceil(width * ratio), imgsz)


def mosaic_of_4(stored: Sequence[Size], imgsz: int, centre: tuple[int, int]) -> tuple[Placement, ...]:
    """Place four images around the centre, (x, y), of a canvas of twice `imgsz`."""
    x, y = centre
    placements = []
    for image, size in enumerate(stored):
        height, width = loaded_size(size, imgsz)
        left, top = x if image % 2 else x - width, y if image >= 2 else y - height
        placements.append(Placement(image, size, (height, width), left, top))
    return tuple(placements)


def perspective_matrix(
    canvas: Size,
    output: Size,
    angle: float = 0.0,
    scale: float = 1.0,
    shears: Sequence[float] = (0.0, 0.0),
    shifts: tuple[float, float] = (0.5, 0.5),
    perspectives: tuple[float, float] = (0.0, 0.0),
) -> Matrix:
    """Return Ultralytics' matrix, float32: centre, perspective, rotation and scale, shear, shift.

    Angles are in degrees; shifts are the canvas's centre as a share of the output's width and height.
    """
    centred, tilted, turned, sheared, shifted = np.tile(np.eye(3, dtype=np.float32), (5, 1, 1))
    centred[:2, 2] = -canvas[1] / 2, -canvas[0] / 2
    tilted[2, :2] = perspectives
    turned[:2] = cv2.getRotationMatrix2D(center=(0, 0), angle=angle, scale=scale)
    sheared[0, 1], sheared[1, 0] = (math.tan(math.radians(shear)) for shear in shears)
    shifted[:2, 2] = shifts[0] * output[1], shifts[1] * output[0]
    return np.asarray(shifted @ sheared @ turned @ tilted @ centred)
