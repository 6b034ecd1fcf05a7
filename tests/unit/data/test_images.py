import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from leco import LecoError
from leco.data.images import decode_image, inspect_image, middle_square

GRADIENT = np.stack(np.broadcast_arrays(*np.ogrid[0:240:12, 0:250:8], 77), axis=2).astype(np.uint8)  # 20 x 32


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(LecoError) as error:
        decode_image(path)
    with pytest.raises(LecoError) as inspected:
        inspect_image(path)
    assert str(inspected.value) == str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value)


def test_a_lossless_image_is_decoded_to_its_pixels(tmp_path):
    for ending in ("png", "bmp", "tif"):
        path = saved(tmp_path / f"a.{ending}", Image.fromarray(GRADIENT))
        np.testing.assert_array_equal(decode_image(path), GRADIENT)
        assert inspect_image(path) == (20, 32)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_other_eight_bit_images_become_rgb(tmp_path, mode):
    image = Image.fromarray(GRADIENT).convert(mode)
    decoded = decode_image(saved(tmp_path / "a.png", image))
    assert decoded.shape == (20, 32, 3)
    np.testing.assert_array_equal(decoded, np.asarray(image.convert("RGB")))


def test_a_palette_with_transparent_entries_becomes_rgb_without_a_warning(tmp_path):
    image = Image.fromarray(GRADIENT).quantize(8)
    path = saved(tmp_path / "a.png", image, transparency=bytes([0, 128, 255]))
    np.testing.assert_array_equal(decode_image(path), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["png", "jpg", "tif", "webp"])
def test_the_orientation_of_a_camera_is_honoured(tmp_path, orientation, ending):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(GRADIENT), exif=exif)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    np.testing.assert_array_equal(decode_image(path), expected)
    assert expected.shape[:2] == ((20, 32) if orientation < 5 else (32, 20))
    assert inspect_image(path) == expected.shape[:2]
    assert decode_image(path, 10).shape == ((10, 16, 3) if orientation < 5 else (16, 10, 3))


@pytest.mark.parametrize("shape", [(400, 300), (300, 401), (64, 64), (5, 9)])
@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_the_shorter_side_gets_the_size_asked_for(tmp_path, shape, ending):
    pixels = np.add.outer(np.linspace(0, 120, shape[0]), np.linspace(0, 130, shape[1])).astype(np.uint8)
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(pixels))
    decoded = decode_image(path, 32)
    short, long = sorted(shape)
    assert sorted(decoded.shape[:2]) == [32, int(32 * long / short)]
    size = (decoded.shape[1], decoded.shape[0])
    with Image.open(path) as image:
        naive = np.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR))
    assert np.abs(decoded.astype(int) - naive).mean() < 2  # a JPEG may be scaled while it is decoded


def test_an_image_cut_short_is_refused(tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    for ending in ("jpg", "png", "bmp", "webp", "tif"):
        path = saved(tmp_path / f"a.{ending}", noise)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert "cannot be decoded" in refusal(path) or "not an image" in refusal(path)


def test_what_is_not_an_image_is_refused(tmp_path):
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("hello")
    assert "is empty (0 bytes)" in refusal(tmp_path / "empty.png")
    assert "is not an image (PNG, JPEG" in refusal(tmp_path / "text.png")
    assert "cannot be decoded" in refusal(tmp_path / "missing.png")


def test_cmyk_is_refused(tmp_path):
    for ending in ("jpg", "tif"):
        path = saved(tmp_path / f"a.{ending}", Image.new("CMYK", (4, 4)))
        assert "is CMYK" in refusal(path)
        assert "convert it to 8-bit RGB" in refusal(path)


def test_more_than_eight_bits_are_refused_even_where_pillow_would_drop_them(tmp_path):
    assert "16-bit" in refusal(saved(tmp_path / "grey.png", Image.fromarray(np.full((4, 4), 999, dtype=np.uint16))))
    assert "16-bit" in refusal(saved(tmp_path / "grey.tif", Image.fromarray(np.full((4, 4), 999, dtype=np.uint16))))
    assert "pixel format F" in refusal(saved(tmp_path / "float.tif", Image.new("F", (4, 4))))
    deep = tmp_path / "rgb.png"
    deep.write_bytes(png_of_16_bit_rgb())
    with Image.open(deep) as image:
        assert image.mode == "RGB"
    assert "more than 8 bits per channel" in refusal(deep)


def png_of_16_bit_rgb() -> bytes:
    import struct
    import zlib

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" + bytes(6))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("ending", ["gif", "png", "webp", "tif"])
def test_several_frames_are_refused_and_one_is_not(tmp_path, ending):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    path = saved(tmp_path / f"a.{ending}", frames[0], save_all=True, append_images=frames[1:])
    assert "has 2 frames" in refusal(path)
    assert decode_image(saved(tmp_path / f"b.{ending}", frames[0])).shape == (8, 8, 3)


def test_of_a_phone_picture_with_a_preview_the_main_one_counts(tmp_path):
    red, blue = (Image.new("RGB", (16, 16), colour) for colour in ("red", "blue"))
    path = saved(tmp_path / "a.jpg", red, format="MPO", save_all=True, append_images=[blue])
    assert decode_image(path)[0, 0, 0] > 200


@pytest.mark.parametrize("limit", [50, 80])  # beyond twice the limit, Pillow refuses by itself; below, it warns
def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch, limit):
    path = saved(tmp_path / "a.png", Image.new("L", (12, 12)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    assert "too large to be decoded safely" in refusal(path)


@pytest.mark.parametrize("shape", [(3000, 2), (2, 3000)])
def test_of_a_line_of_pixels_that_would_be_one_once_scaled_only_the_middle_is_scaled(tmp_path, monkeypatch, shape):
    pixels = np.arange(3000, dtype=np.uint16).repeat(2).reshape(3000, 2) // 12
    path = saved(tmp_path / "a.png", Image.fromarray((pixels if shape[0] > 2 else pixels.T).astype(np.uint8)))
    whole = middle_square(path, 8)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 6000)
    assert decode_image(path).shape == (*shape, 3)
    assert max(decode_image(path, 8).shape) == 32
    assert (middle_square(path, 8).int() - whole.int()).abs().max() <= 1


def test_broken_notes_of_a_camera_are_no_reason_to_refuse_or_to_warn(tmp_path):
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01\x03\0"
    path = saved(tmp_path / "a.jpg", Image.fromarray(GRADIENT), exif=exif)
    before = list(warnings.filters)
    assert decode_image(path).shape == (20, 32, 3)
    assert list(warnings.filters) == before
