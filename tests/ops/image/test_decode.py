"""Image decoding ops."""

from __future__ import annotations

import io
import sys
import zlib

import numpy as np
import pytest

from mobileprep.core.limits import set_limits
from mobileprep.errors import (
    CorruptFileError,
    InvalidGraphError,
    MemoryLimitError,
    UnsupportedError,
)
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import run
from tests.ops.pictures import PIXELS, Image, encoded, text

STILL = ["DecodeJpeg", "DecodePng", "DecodeBmp"]
CROP, ANY = "DecodeAndCropJpeg", "DecodeImage"
DECODERS = [*STILL, "DecodeGif", ANY, CROP]

SHAPES = [
    *(shapes(op, [()], [(-1, -1, -1)]) for op in STILL),
    *(shapes(op, [()], [(-1, -1, 3)], channels=3) for op in STILL),
    shapes("DecodeGif", [()], [(-1, -1, -1, 3)]),
    shapes(ANY, [()], [None]),
    shapes(ANY, [()], [(-1, -1, -1)], expand_animations=False),
    shapes(ANY, [()], [(-1, -1, 1)], channels=1, expand_animations=False),
    shapes(CROP, [(), [1, 2, 5, 6]], [(5, 6, -1)]),
    shapes(CROP, [(), [1, 2, 5, 6]], [(5, 6, 1)], channels=1),
    shapes(CROP, [(), (4,)], [(-1, -1, 3)], channels=3),
    shapes("ExtractJpegShape", [()], [(3,)]),
    shapes("EncodeJpeg", [(9, 8, 3)], [()]),
    shapes("EncodePng", [(9, 8, 3)], [()]),
    shapes("EncodePng", [(2, -1, 9, 8, 3)], [(2, -1)]),
    shapes("EncodePng", [None], [None]),
    shapes("EncodePng", [(8, 3)], None),
]

COSTS = [cost(op, [()], [(9, 8, 3)], 0) for op in (*DECODERS, "ExtractJpegShape")]

PNG = text(encoded(PIXELS, "PNG"))
JPEG = text(encoded(PIXELS, "JPEG", quality=95))
GIF = text(encoded(PIXELS, "GIF"))
BMP = text(encoded(PIXELS, "BMP"))
ALPHA = np.dstack([PIXELS, PIXELS[..., 0]])
DEEP = np.random.default_rng(1).integers(0, 1 << 16, (3, 4)).astype(np.uint16)


def test_decode_lossless_images() -> None:
    np.testing.assert_array_equal(run("DecodePng", PNG), PIXELS)
    np.testing.assert_array_equal(run("DecodeBmp", BMP), PIXELS)


def test_image_kind_is_detected_from_content() -> None:
    np.testing.assert_array_equal(run("DecodeJpeg", PNG), PIXELS)
    assert run("DecodePng", JPEG).shape == PIXELS.shape
    assert run("DecodeGif", PNG).shape == (1, *PIXELS.shape)
    np.testing.assert_array_equal(run("DecodeImage", BMP), PIXELS)


def test_decode_jpeg() -> None:
    gray = np.full((8, 8, 3), 100, np.uint8)
    result = run("DecodeJpeg", text(encoded(gray, "JPEG", quality=95)))
    assert np.abs(result.astype(int) - 100).max() <= 1


def test_decode_with_channels() -> None:
    assert run("DecodePng", PNG, channels=1).shape == (5, 7, 1)
    four = run("DecodePng", PNG, channels=4)
    np.testing.assert_array_equal(four[..., 3], np.full((5, 7), 255))
    clear = text(encoded(ALPHA, "PNG"))
    np.testing.assert_array_equal(run("DecodePng", clear), ALPHA)
    np.testing.assert_array_equal(run("DecodePng", clear, channels=3), PIXELS)
    assert run("DecodeJpeg", JPEG, channels=1).shape == (5, 7, 1)


def test_decode_as_uint16_or_float() -> None:
    wide = run("DecodePng", PNG, dtype=DType.UINT16)
    np.testing.assert_array_equal(wide, PIXELS.astype(np.uint16) * 257)
    np.testing.assert_allclose(run("DecodeImage", PNG, dtype=DType.FLOAT), PIXELS / 255, rtol=1e-6)
    spread = run("DecodeImage", BMP, dtype=DType.UINT16)
    np.testing.assert_array_equal(spread, PIXELS.astype(np.uint16) * 256)
    deep = text(encoded(DEEP, "PNG"))
    np.testing.assert_array_equal(run("DecodePng", deep, dtype=DType.UINT16)[..., 0], DEEP)
    np.testing.assert_array_equal(run("DecodePng", deep)[..., 0], DEEP >> 8)


def test_decode_jpeg_with_ratio() -> None:
    assert run("DecodeJpeg", JPEG, ratio=2).shape == (3, 4, 3)
    with pytest.raises(UnsupportedError, match="not shrunk by 8"):
        run("DecodeJpeg", JPEG, ratio=8)


def test_decode_animation() -> None:
    frames = [Image.fromarray(PIXELS), Image.fromarray(255 - PIXELS)]
    stream = io.BytesIO()
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:])
    animation = text(stream.getvalue())
    assert run("DecodeGif", animation).shape == (2, 5, 7, 3)
    assert run("DecodeImage", animation).shape == (2, 5, 7, 3)
    assert run("DecodeImage", animation, expand_animations=False).shape == (5, 7, 3)
    with pytest.raises(InvalidGraphError, match="animation of 2 frames"):
        run("DecodePng", animation)
    assert run("DecodePng", GIF).shape == (5, 7, 3)


@pytest.mark.parametrize(("op", "data"), [("DecodePng", BMP), ("DecodeBmp", PNG)])
def test_unsupported_image_kind_is_refused(op: str, data: np.ndarray) -> None:
    with pytest.raises(CorruptFileError, match="cannot decode its input"):
        run(op, data)


@pytest.mark.parametrize("data", [PNG, JPEG, GIF])
def test_truncated_image_is_refused(data: np.ndarray) -> None:
    whole = data.item()
    for end in (12, len(whole) // 3):
        with pytest.raises(CorruptFileError, match=r"image: .*is damaged: (?!.* at 0x)"):
            run("DecodeImage", text(whole[:end]))


def test_huge_image_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    huge = bytearray(PNG.item())
    huge[16:24] = (1 << 16).to_bytes(4, "big") * 2
    huge[29:33] = zlib.crc32(bytes(huge[12:29])).to_bytes(4, "big")
    with pytest.raises(CorruptFileError, match=r"65536 x 65536 pixels"):
        run("DecodePng", text(bytes(huge)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF"])
def test_memory_limit_is_checked_before_decoding(kind: str) -> None:
    small = text(encoded(np.zeros((30, 20, 3), np.uint8), kind))
    try:
        set_limits(memory=20_000)
        assert run("DecodeImage", small, expand_animations=False).shape == (30, 20, 3)
        set_limits(memory=8_000)
        with pytest.raises(MemoryLimitError, match="20 x 30 pixels takes"):
            run("DecodeImage", small, expand_animations=False)
    finally:
        set_limits()


@pytest.mark.parametrize(("op", "channels"), [("DecodePng", 2), ("DecodeJpeg", 4)])
def test_invalid_channels_are_refused(op: str, channels: int) -> None:
    data = PNG if op == "DecodePng" else JPEG
    with pytest.raises(InvalidGraphError, match="channels"):
        run(op, data, channels=channels)


def test_missing_pillow_is_reported_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UnsupportedError) as error:
        run("DecodePng", PNG)
    assert error.value.hint == "pip install 'mobileprep[image]'"
    # BMP needs no library.
    assert run("DecodeBmp", BMP).shape == PIXELS.shape


def test_decode_and_crop_jpeg() -> None:
    data = text(encoded(PIXELS, "JPEG"))
    whole = run("DecodeJpeg", data)
    height, width, _ = whole.shape
    assert run("ExtractJpegShape", data).tolist() == list(whole.shape)
    window = np.array([1, 2, height - 1, width - 2], np.int32)
    np.testing.assert_array_equal(run("DecodeAndCropJpeg", data, window), whole[1:, 2:])
    with pytest.raises(InvalidGraphError, match="is not within"):
        run("DecodeAndCropJpeg", data, window + 1)
    with pytest.raises(CorruptFileError, match="cannot decode its input"):
        run("ExtractJpegShape", text(encoded(PIXELS, "PNG")))


test_shapes_and_costs = case_tests(SHAPES, COSTS)
