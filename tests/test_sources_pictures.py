"""Reading pictures: the corpus, every pixel type, orientation, damage, limits, memory."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import awkward
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from permissions import as_nobody
from PIL import Image, ImageFile, ImageOps, PngImagePlugin

from labeler.errors import SourceError
from labeler.sources.animation import is_animated
from labeler.sources.formats import PICTURE_EXTENSIONS, PICTURE_FORMATS
from labeler.sources.pictures import MAX_PIXELS, Picture, PictureInfo, picture_size, read_picture

CORPUS = awkward.CORPUS / "images"
EXPECTED = awkward.expected("images")

pytestmark = pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")


def read(path: Path, *, exif: str = "apply", max_pixels: int = MAX_PIXELS) -> Picture:
    return read_picture(path, exif=exif, max_pixels=max_pixels)  # type: ignore[arg-type]


def size(path: Path, *, exif: str = "apply", max_pixels: int = MAX_PIXELS) -> PictureInfo:
    return picture_size(path, exif=exif, max_pixels=max_pixels)  # type: ignore[arg-type]


def reason(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        read(path)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    assert str(path.parent) not in text, "outputs must not depend on where the folder lies"
    return text


def outcome(path: Path, *, max_pixels: int = MAX_PIXELS) -> Picture | str:
    """The picture, or the reason why there is none; any other exception is a fault of ours."""
    try:
        return read(path, max_pixels=max_pixels)
    except SourceError as error:
        return str(error)


# --- the corpus -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_corpus_ends_as_an_independent_reader_saw_it(name: str) -> None:
    expected = EXPECTED[name]
    if not expected["opens"]:
        reason(CORPUS / name)
        return
    picture = read(CORPUS / name)
    assert (picture.height, picture.width) == (expected["height"], expected["width"])
    assert picture.exif_orientation == expected["orientation"]
    assert size(CORPUS / name) == PictureInfo(picture.height, picture.width, picture.exif_orientation)
    upright = picture.upright()
    assert upright.mode == "RGB"
    assert upright.size == (picture.width, picture.height)
    assert ("more than one frame: the first is used" in picture.notes) == (expected["frames"] > 1)
    assert is_animated(CORPUS / name) == (expected["frames"] > 1)


@pytest.mark.usefixtures("corpus_dir")
def test_every_corpus_picture_is_accounted_for() -> None:
    assert {path.name for path in CORPUS.iterdir()} - {"expected.json"} == set(EXPECTED)
    assert len(EXPECTED) == 32


@pytest.mark.usefixtures("corpus_dir")
def test_deep_grey_of_the_corpus_comes_out_neither_white_nor_black() -> None:
    for name in ("hopper_16bit.pgm", "12in16bit.tif", "16bit.MM.deflate.tif", "10ct_32bit_128.tiff", "i_trns.png"):
        values = np.asarray(read(CORPUS / name).image)
        assert values.min() == 0
        assert values.max() == 255
        assert 10 < values.mean() < 200, name


def test_formats_are_those_that_pillow_decodes() -> None:
    Image.init()
    registered = {extension for extension, name in Image.EXTENSION.items() if name in Image.OPEN or name == "MPO"}
    undecodable = {".eps", ".ps", ".wmf", ".emf", ".bufr", ".grib", ".h5", ".hdf", ".mpg", ".mpeg"}
    assert registered - undecodable <= PICTURE_EXTENSIONS
    assert not undecodable & PICTURE_EXTENSIONS
    wrong = {
        (name, extension)
        for name, extensions in PICTURE_FORMATS.items()
        for extension in extensions
        if Image.EXTENSION.get(extension, name) not in (name, "BMP")
    }
    assert not wrong


def test_no_program_is_started_for_a_postscript_file_named_jpg(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    assert "not a picture" in reason(path)


# --- pixel types ----------------------------------------------------------------------------------------------------


def over_white(rgba: np.ndarray) -> np.ndarray:
    alpha = rgba[..., 3:].astype(float) / 255
    return rgba[..., :3] * alpha + 255 * (1 - alpha)


def test_alpha_is_composited_over_white(tmp_path: Path) -> None:
    rgba = np.random.default_rng(0).integers(0, 256, (33, 21, 4), dtype=np.uint8)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    picture = read(tmp_path / "a.png")
    assert np.abs(np.asarray(picture.image) - over_white(rgba)).max() <= 1
    assert picture.notes == ("transparency composited over white",)


def test_transparent_palette_entry_and_colour_are_white(tmp_path: Path) -> None:
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([10, 20, 30, 200, 0, 0])
    palette.putpixel((2, 1), 0)
    palette.save(tmp_path / "p.png", transparency=0)
    Image.new("RGB", (3, 3), (7, 8, 9)).save(tmp_path / "c.png", transparency=(7, 8, 9))
    pixels = np.asarray(read(tmp_path / "p.png").image)
    assert pixels[1, 2].tolist() == [255, 255, 255]
    assert pixels[0, 0].tolist() == [200, 0, 0]
    assert (np.asarray(read(tmp_path / "c.png").image) == 255).all()


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bit_grey_is_stretched_between_its_own_ends(tmp_path: Path, suffix: str) -> None:
    grey = np.linspace(1000, 60000, 50 * 40).reshape(40, 50).astype(np.uint16)
    Image.fromarray(grey).save(tmp_path / f"a{suffix}")
    picture = read(tmp_path / f"a{suffix}")
    wanted = (grey - 1000.0) * 255 / 59000
    assert np.abs(np.asarray(picture.image) - wanted[..., None]).max() <= 0.5 + 1e-9
    assert picture.notes == ("grey values 1000 to 60000 stretched to 0 to 255",)


@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_16_bit_grey_of_both_byte_orders(tmp_path: Path, order: str) -> None:
    grey = np.array([[0, 1, 256, 65535]], dtype=np.uint16)
    mark, short = (b"II", "little") if order == "<u2" else (b"MM", "big")

    def tag(number: int, value: int) -> bytes:
        kept = value.to_bytes(2, short) + b"\0\0"  # type: ignore[arg-type]
        return b"".join([n.to_bytes(2, short) for n in (number, 3)]) + (1).to_bytes(4, short) + kept  # type: ignore[arg-type]

    tags = {256: 4, 257: 1, 258: 16, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 8}
    head = mark + (42).to_bytes(2, short) + (16).to_bytes(4, short)  # type: ignore[arg-type]
    body = len(tags).to_bytes(2, short) + b"".join(tag(*entry) for entry in tags.items()) + b"\0" * 4  # type: ignore[arg-type]
    (tmp_path / "a.tif").write_bytes(head + grey.astype(order).tobytes() + body)
    assert np.asarray(read(tmp_path / "a.tif").image)[0, :, 0].tolist() == [0, 0, 1, 255]


def test_float_grey_with_nan_and_infinity(tmp_path: Path) -> None:
    grey = np.array([[np.nan, -np.inf, np.inf], [-1.0, 0.0, 1.0]], dtype=np.float32)
    Image.fromarray(grey).save(tmp_path / "a.tif")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = read(tmp_path / "a.tif")
    assert np.asarray(picture.image)[..., 1].tolist() == [[0, 0, 255], [0, 128, 255]]


@pytest.mark.parametrize("values", [[np.nan] * 4, [np.inf, 2.0, 2.0, np.nan], [1e38, -3e38, 0, 3e38], [5.0] * 4])
def test_float_grey_without_a_range_never_fails(tmp_path: Path, values: list[float]) -> None:
    Image.fromarray(np.array([values], dtype=np.float32)).save(tmp_path / "a.tif")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels = np.asarray(read(tmp_path / "a.tif").image)[0, :, 0]
    assert pixels[0] == {5.0: 0, np.inf: 255, 1e38: 170}.get(values[0], 0)


def test_conversion_in_strips_equals_conversion_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    noise = Image.fromarray(rng.integers(0, 256, (61, 47, 4), dtype=np.uint8))
    deep = Image.fromarray(rng.integers(0, 65536, (61, 47), dtype=np.uint16))
    cmyk = noise.convert("RGB").convert("CMYK")
    for name, picture in {"rgba.png": noise, "deep.png": deep, "cmyk.tif": cmyk, "p.gif": noise.convert("P")}.items():
        picture.save(tmp_path / name)
        whole = np.asarray(read(tmp_path / name).image)
        monkeypatch.setattr("labeler.sources.rgb.STRIP_PIXELS", 100)
        assert np.array_equal(np.asarray(read(tmp_path / name).image), whole), name
        monkeypatch.undo()
    assert np.array_equal(np.asarray(read(tmp_path / "cmyk.tif").image), np.asarray(cmyk.convert("RGB")))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I", "F", "I;16"])
def test_every_mode_of_a_tiff_becomes_rgb(tmp_path: Path, mode: str) -> None:
    ramp = Image.linear_gradient("L").resize((20, 30))
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(ramp).astype(np.uint16) * 256)
    elif mode == "LAB":
        picture = Image.merge("LAB", [ramp, Image.new("L", ramp.size, 128), Image.new("L", ramp.size, 128)])
    else:
        picture = ramp.convert("RGB").convert(mode) if mode == "YCbCr" else ramp.convert(mode)
    picture.save(tmp_path / "a.tif", compression="tiff_lzw" if mode == "YCbCr" else None)
    pixels = np.asarray(read(tmp_path / "a.tif").image).astype(int)
    assert pixels.shape == (30, 20, 3)
    assert pixels[0].mean() < 40
    assert pixels[-1].mean() > 215


# --- orientation ----------------------------------------------------------------------------------------------------

SCENE = np.zeros((24, 40, 3), dtype=np.uint8)
SCENE[:12, :20], SCENE[:12, 20:], SCENE[12:, :20] = (250, 10, 10), (10, 250, 10), (10, 10, 250)
"""Upright picture whose quarters tell all eight orientations apart."""


def stored_for(orientation: int) -> Image.Image:
    """What a camera would store so that `orientation` makes SCENE of it; inverses written out by hand."""
    upright = Image.fromarray(SCENE)
    inverse = {1: [], 2: [0], 3: [3], 4: [1], 5: [5], 6: [2], 7: [6], 8: [4]}[orientation]
    for method in inverse:
        upright = upright.transpose(Image.Transpose(method))
    return upright


def save_oriented(path: Path, orientation: int, **options: Any) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored_for(orientation).save(path, exif=exif, **options)


FORMATS = {
    "jpg": {"quality": 95},
    "png": {},
    "webp": {"lossless": True},
    "raw.tif": {},
    "lzw.tif": {"compression": "tiff_lzw"},
    "avif": {"quality": 95},
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", FORMATS)
def test_orientation_is_applied_once(tmp_path: Path, suffix: str, orientation: int) -> None:
    path = tmp_path / f"a.{suffix}"
    save_oriented(path, orientation, **FORMATS[suffix])
    assert size(path) == PictureInfo(24, 40, orientation)
    picture = read(path)
    assert (picture.height, picture.width, picture.exif_orientation) == (24, 40, orientation)
    assert np.abs(np.asarray(picture.upright()).astype(int) - SCENE).mean() < 6


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", FORMATS)
def test_orientation_ignored_gives_rows_as_stored(tmp_path: Path, suffix: str, orientation: int) -> None:
    path = tmp_path / f"a.{suffix}"
    save_oriented(path, orientation, **FORMATS[suffix])
    stored = np.asarray(stored_for(orientation)).astype(int)
    picture = read(path, exif="ignore")
    assert size(path, exif="ignore") == PictureInfo(*stored.shape[:2], orientation)
    assert (picture.height, picture.width) == stored.shape[:2]
    assert np.abs(np.asarray(picture.upright()) - stored).mean() < 6


def test_the_scene_tells_orientations_apart() -> None:
    rotated = [ImageOps.exif_transpose(Image.fromarray(SCENE)), *(stored_for(n) for n in range(2, 9))]
    assert len({picture.tobytes() for picture in rotated}) == 8


def png_with_chunk_behind_pixels(kind: bytes, body: bytes) -> bytes:
    import zlib

    buffer = io.BytesIO()
    stored_for(6).save(buffer, "PNG")
    whole = buffer.getvalue()
    chunk = len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
    return whole[:-12] + chunk + whole[-12:]


@pytest.mark.parametrize("kind", ["eXIf", "iTXt"])
def test_png_orientation_behind_the_pixels(tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    xmp = b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="6"/>'
    body = exif.tobytes().removeprefix(b"Exif\0\0") if kind == "eXIf" else xmp
    (tmp_path / "a.png").write_bytes(png_with_chunk_behind_pixels(kind.encode(), body))
    assert size(tmp_path / "a.png") == PictureInfo(24, 40, 6)
    assert np.array_equal(np.asarray(read(tmp_path / "a.png").upright()), SCENE)


def test_size_of_a_png_does_not_decode_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png_with_chunk_behind_pixels(b"tEXt", b"date:modify\0today"))
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _self: pytest.fail("decoded"))
    assert size(tmp_path / "a.png") == PictureInfo(40, 24, 1)


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_orientation_out_of_range_is_none(tmp_path: Path, value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    Image.fromarray(SCENE).save(tmp_path / "a.jpg", exif=exif)
    assert size(tmp_path / "a.jpg") == PictureInfo(24, 40, 1)


def test_damaged_exif_is_noted(tmp_path: Path) -> None:
    text = PngImagePlugin.PngInfo()
    text.add_text("Raw profile type exif", "\nexif\n 4\nno hex digits")
    Image.fromarray(SCENE).save(tmp_path / "a.png", pnginfo=text)
    picture = read(tmp_path / "a.png")
    assert size(tmp_path / "a.png") == PictureInfo(24, 40, 1)
    assert picture.notes == ("EXIF is damaged: orientation taken as 1",)


# --- damage ---------------------------------------------------------------------------------------------------------


def encoded(suffix: str) -> bytes:
    noise = np.random.default_rng(2).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    options = {"lzw.tif": {"compression": "tiff_lzw"}, "jpg": {"quality": 60}}.get(suffix, {})
    buffer = io.BytesIO()
    name = {"jpg": "JPEG", "jp2": "JPEG2000"}.get(suffix, suffix.split(".")[-1].upper().replace("TIF", "TIFF"))
    Image.fromarray(noise).save(buffer, name, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "suffix", ["jpg", "png", "gif", "bmp", "webp", "raw.tif", "lzw.tif", "avif", "ppm", "jp2", "tga"]
)
def test_a_cut_file_fails_or_has_lost_nothing(tmp_path: Path, suffix: str) -> None:
    whole, path = encoded(suffix), tmp_path / f"a.{suffix}"
    path.write_bytes(whole)
    complete = read(path).image.tobytes()
    for length in [*range(0, len(whole), max(1, len(whole) // 23)), *range(len(whole) - 12, len(whole))]:
        path.write_bytes(whole[:length])
        found = outcome(path)
        if isinstance(found, str):
            assert "\n" not in found
        else:
            assert length >= len(whole) * 0.9, f"{length} of {len(whole)} bytes are a picture"
            assert found.image.tobytes() == complete, f"{length} of {len(whole)} bytes gave another picture"


SEEDS = [encoded(suffix) for suffix in ("jpg", "png", "gif", "bmp", "webp", "lzw.tif", "ppm", "tga")] + [
    (CORPUS / name).read_bytes()
    for name in sorted(EXPECTED)
    if EXPECTED[name]["opens"] and (CORPUS / name).stat().st_size < 20000
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=6))
def test_random_damage_is_a_picture_or_a_reason(tmp_path: Path, whole: bytes, damage: list[tuple[float, int]]) -> None:
    damaged = bytearray(whole)
    for place, value in damage:
        # Headers are short: half of the hits go there.
        damaged[int(place * len(whole)) if value % 2 else int(place * min(200, len(whole)))] = value
    path = tmp_path / "a.bin"
    path.write_bytes(damaged)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = outcome(path, max_pixels=1 << 22)
        if isinstance(found, str):
            assert "\n" not in found
        else:
            wanted = PictureInfo(found.height, found.width, found.exif_orientation)
            assert size(path, max_pixels=1 << 22) == wanted


def test_what_is_no_readable_file_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "dir.jpg").mkdir()
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("hello, this is a text\n" * 10)
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    assert reason(tmp_path / "missing.jpg") == "No such file or directory"
    assert reason(tmp_path / "dir.jpg") == "is a directory, not a file"
    assert reason(tmp_path / "empty.jpg") == "the file is empty"
    assert "not a picture" in reason(tmp_path / "text.jpg")
    assert "symbolic links" in reason(tmp_path / "loop.jpg")
    assert reason(tmp_path / "pipe.jpg") == "is not a regular file"
    assert "null byte" in reason(tmp_path / "a\0b.jpg")


def test_a_file_that_may_not_be_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("locked") / "a.png"
    Image.fromarray(SCENE).save(path)
    path.chmod(0)
    Image.init()
    with as_nobody():
        assert reason(path) == "Permission denied"


# --- limits ---------------------------------------------------------------------------------------------------------


def test_the_pixel_limit_names_its_option(tmp_path: Path) -> None:
    Image.new("1", (300, 200)).save(tmp_path / "a.png")
    for function in (read, size):
        with pytest.raises(
            SourceError, match=r"300 x 200 is 60000 pixels, more than the limit of 59999: .*--max-pixels"
        ):
            function(tmp_path / "a.png", max_pixels=59999)
        assert function(tmp_path / "a.png", max_pixels=60000).width == 300


@pytest.mark.parametrize("suffix", ["jpg", "png", "lzw.tif", "webp", "gif"])
@pytest.mark.parametrize("limit", [100, 3000])
def test_the_limit_of_pillow_neither_hinders_nor_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, limit: int
) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(encoded(suffix))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(path).width == size(path).width == 80
    assert limit == Image.MAX_IMAGE_PIXELS
    with pytest.raises(SourceError, match="max-pixels"):
        read(path, max_pixels=1000)
    assert limit == Image.MAX_IMAGE_PIXELS


CHILD = """
import resource, sys
from pathlib import Path
from PIL import Image
from labeler.preprocess import model_input
from labeler.sources.pictures import MAX_PIXELS, read_picture
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
model_input(Image.new("RGB", (64, 64)), height=1024, width=1024)
Image.init()
before = peak()
picture = read_picture(Path(sys.argv[1]), exif="apply", max_pixels=MAX_PIXELS)
model_input(picture.image, height=1024, width=1024, orientation=picture.orientation)
print(picture.height, picture.width, peak() - before)
"""


def test_100_megapixels_take_the_memory_of_one_decoded_picture(tmp_path: Path) -> None:
    save = "import sys\nfrom PIL import Image\nexif = Image.Exif()\nexif[274] = 6\n"
    save += "Image.new('RGB', (12500, 8000), 'teal').save(sys.argv[1], quality=50, exif=exif)"
    subprocess.run([sys.executable, "-c", save, str(tmp_path / "a.jpg")], check=True)
    run = [sys.executable, "-W", "error", "-c", CHILD, str(tmp_path / "a.jpg")]
    height, width, megabytes = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    assert (height, width) == ("12500", "8000")
    decoded = 12500 * 8000 * 4 / (1 << 20)
    assert float(megabytes) < decoded * 1.1
