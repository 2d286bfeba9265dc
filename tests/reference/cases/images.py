"""Cases of ops on images and on boxes in them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import product

import numpy as np

from mobileprep.formats.dtypes import DType
from tests.ops.pictures import Image, encoded, text
from tests.reference.cases.base import BF16, F32, Case, Make, i32, scalar

SIZES = (
    ((5, 7), (9, 3)),
    ((1, 1), (4, 4)),
    ((8, 8), (8, 8)),
    ((3, 5), (1, 1)),
    ((17, 23), (61, 40)),
    ((64, 48), (17, 5)),
    ((2, 2), (7, 1)),
    ((100, 1), (33, 3)),
)


def resizing() -> Iterator[Case]:
    make = Make(51)
    for op, (source, target), aligned, centers in product(
        ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"),
        SIZES,
        (False, True),
        (False, True),
    ):
        if op == "ResizeArea" and centers:
            continue
        attrs = {"align_corners": aligned} | ({"half_pixel_centers": True} if centers else {})
        x = make.real(2, *source, 3, low=0, high=200)
        yield Case(op, (x, i32(*target)), attrs, note=f"{target}{aligned:d}{centers:d}")
    for op, kind in product(
        ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"),
        (np.uint8, np.int8, np.int16, np.uint16, np.int32, np.int64, np.float16, BF16, np.float64),
    ):
        # Through int64, since narrow signed types wrap around when floats are converted.
        x = make.real(1, 6, 5, 2, low=0, high=120).astype(np.int64).astype(kind)
        yield Case(op, (x, i32(4, 9)))
    for op in ("ResizeBilinear", "ResizeBicubic"):
        yield Case(op, (make.real(0, 4, 4, 2), i32(2, 2)), note="empty")
        yield Case(op, (make.real(1, 0, 4, 2), i32(2, 2)), note="nothing")
        yield Case(op, (make.real(1, 4, 4, 2), i32(0, 2)), note="to nothing")


def cropping() -> Iterator[Case]:
    make = Make(52)
    kinds = (F32, np.uint8, np.int16, np.int64, np.float16, np.float64)
    for index, (kind, method) in enumerate(product(kinds, ("bilinear", "nearest"))):
        images = make.real(3, 5 + index % 3, 7, 2, kind=kind, low=0, high=100)
        boxes = make.real(6, 4, low=-0.3, high=1.3)
        owners = make.whole(0, 3, 6)
        for size in ((4, 5), (1, 3), (1, 1)):
            attrs = {"method": method, "extrapolation_value": 2.5}
            yield Case("CropAndResize", (images, boxes, owners, i32(*size)), attrs, note=str(size))
    none = np.zeros((0, 4), F32)
    yield Case("CropAndResize", (images, none, i32(), i32(2, 2)), {}, note="none")
    boxes = make.real(1, 4)
    yield Case("CropAndResize", (images, boxes, i32(3), i32(2, 2)), {}, note="no such image")


def suppression() -> Iterator[Case]:
    make = Make(53)
    for trial in range(24):
        count = int(make.rng.integers(0, 40))
        kind = np.float16 if trial % 3 == 0 else F32
        boxes = make.real(count, 4, low=0, high=1, kind=kind)
        scores = make.real(count, low=0, high=1, kind=kind)
        if trial % 4 == 0:
            scores = np.round(scores, 1)
        most = scalar(int(make.rng.integers(0, 20)))
        overlap, least = (scalar(x, kind) for x in make.rng.random(2) * (1, 0.5))
        three = (boxes, scores, most)
        five = (*three, overlap, least)
        if kind is F32:
            yield Case("NonMaxSuppression", three, {"iou_threshold": float(overlap)})
            matrix = make.real(count, count, low=0, high=1)
            yield Case("NonMaxSuppressionWithOverlaps", (matrix, *five[1:]))
        yield Case("NonMaxSuppressionV2", (*three, overlap))
        yield Case("NonMaxSuppressionV3", five)
        for padded in (False, True):
            attrs = {"pad_to_max_output_size": padded}
            yield Case("NonMaxSuppressionV4", five, attrs, note=str(padded))
            # In half precision, rounding changes the order of equal scores.
            for sigma in (0.0, 0.5) if kind is F32 else (0.0,):
                inputs = (*five, scalar(sigma, kind))
                yield Case("NonMaxSuppressionV5", inputs, attrs, note=f"{padded}{sigma}")


def suppression_of_classes() -> Iterator[Case]:
    make = Make(57)
    for trial in range(12):
        count, classes = int(make.rng.integers(0, 30)), int(make.rng.integers(1, 4))
        shared = 1 if trial % 2 else classes
        boxes = make.real(2, count, shared, 4, low=-0.2, high=1.2)
        scores = make.real(2, count, classes, low=0, high=1)
        most = scalar(int(make.rng.integers(1, 8))), scalar(int(make.rng.integers(1, 25)))
        limits = (scalar(x, F32) for x in make.rng.random(2) * (1, 0.5))
        attrs = {"pad_per_class": trial % 3 == 0, "clip_boxes": trial % 4 < 2}
        inputs = (boxes, scores, *most, *limits)
        yield Case("CombinedNonMaxSuppression", inputs, attrs, note=str(trial))


def colors() -> Iterator[Case]:
    make = Make(54)
    for kind in (F32, np.float64):
        pixels = make.real(2, 5, 4, 3, kind=kind, low=0, high=1)
        pixels[0, :, :, 1] = pixels[0, :, :, 0]
        pixels[1, 1] = 0
        pixels[1, 2] = 0.5
        yield Case("RGBToHSV", (pixels,))
        yield Case("HSVToRGB", (make.real(3, 3, kind=kind, low=0, high=1),))
    pixels = make.real(2, 5, 4, 3, low=0, high=1)
    for value in (-0.9, -0.1, 0.0, 0.4, 1.0):
        yield Case("AdjustHue", (pixels, scalar(value, F32)), note=str(value))
        yield Case("AdjustSaturation", (pixels, scalar(value + 1, F32)), note=str(value))
        yield Case("AdjustContrastv2", (pixels, scalar(value, F32)), note=str(value))


def encoded_images() -> Iterator[tuple[str, bytes]]:
    rng = np.random.default_rng(55)

    def pixels(*shape: int) -> np.ndarray:
        return rng.integers(0, 256, shape, dtype=np.uint8)

    color, gray = pixels(9, 7, 3), pixels(9, 7)
    for kind in ("PNG", "JPEG", "GIF", "BMP"):
        yield f"color {kind}", encoded(color, kind)
        yield f"gray {kind}", encoded(gray, kind)
    yield "clear PNG", encoded(pixels(5, 6, 4), "PNG")
    yield "gray clear PNG", encoded(pixels(5, 6, 2), "PNG")
    yield "palette PNG", encoded(color, "PNG", "P")
    yield "bits PNG", encoded(gray, "PNG", "1")
    yield "deep PNG", encoded(rng.integers(0, 1 << 16, (4, 5)).astype(np.uint16), "PNG")
    yield "clear BMP", encoded(pixels(5, 6, 4), "BMP")
    yield "large JPEG", encoded(np.kron(color, np.ones((8, 8, 1), np.uint8)), "JPEG")
    frames = [Image.fromarray(pixels(8, 8, 3)) for _ in range(3)]
    stream = io.BytesIO()
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:], duration=10)
    yield "animated GIF", stream.getvalue()
    yield "nothing", b""
    yield "text", b"no picture"


def decoding() -> Iterator[Case]:
    for note, data in encoded_images():
        inputs = (text(data),)
        for channels in (0, 1, 3, 4):
            # libpng gives 1-bit images an alpha of 1 instead of 255.
            if (note, channels) == ("bits PNG", 4):
                continue
            chosen = {"channels": channels}
            for dtype in (DType.UINT8, DType.UINT16):
                attrs = {**chosen, "dtype": dtype}
                if "JPEG" not in note:
                    yield Case("DecodePng", inputs, attrs, note=f"{note}{channels}{dtype.short}")
            if "JPEG" not in note:
                for dtype in (DType.UINT8, DType.UINT16, DType.FLOAT):
                    attrs = {**chosen, "dtype": dtype}
                    yield Case("DecodeImage", inputs, attrs, note=f"{note}{channels}{dtype.short}")
            # Pillow has only the exact transform, which TensorFlow uses on request.
            for ratio in (1, 2, 4) if note == "large JPEG" else (1,):
                attrs = {**chosen, "dct_method": "INTEGER_ACCURATE", "ratio": ratio}
                yield Case("DecodeJpeg", inputs, attrs, note=f"{note}{channels}{ratio}")
            yield Case("DecodeBmp", inputs, chosen, note=f"{note}{channels}")
        if "JPEG" not in note:
            yield Case("DecodeGif", inputs, note=note)
            yield Case("DecodeImage", inputs, {"expand_animations": False}, note=f"first {note}")


def cases() -> Iterator[Case]:
    for maker in (resizing, cropping, suppression, suppression_of_classes, colors, decoding):
        yield from maker()
