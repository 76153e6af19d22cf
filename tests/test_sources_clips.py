"""Animated pictures and folders of frames as clips, and which of the things below a folder are clips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rendered_clips import render, scene

from labeler.errors import SourceError
from labeler.sources.clips import Clip, open_clip
from labeler.sources.digests import clip_sha256, file_sha256
from labeler.sources.pictures import MAX_PIXELS
from labeler.sources.scan import find_clips

FRAMES = [Image.fromarray(scene(index)) for index in range(9)]


def opened(path: Path, *, exif: str = "apply", max_pixels: int = MAX_PIXELS) -> Clip:
    return open_clip(path, exif=exif, max_pixels=max_pixels)  # type: ignore[arg-type]


def pixels(clip: Clip, **how: Any) -> list[bytes]:
    return [frame.image.tobytes() for frame in clip.frames(**how) if frame.image]


def save_animation(path: Path, **options: Any) -> None:
    lossless = {"lossless": True} if path.suffix == ".webp" else {}
    FRAMES[0].save(path, save_all=True, append_images=FRAMES[1:], **lossless, **options)


# --- animated pictures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".webp", ".png", ".gif", ".avif"])
def test_animations_are_read_frame_by_frame(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labeler.sources.clips.HELD_BYTES", 96 * 128 * 4 * 3)
    path = tmp_path / f"a{suffix}"
    save_animation(path, duration=[100, 50, 200, 100, 100, 100, 100, 100, 300])
    with opened(path) as clip:
        index = clip.index
        assert (index.count, index.height, index.width, index.problem) == (9, 96, 128, None)
        assert index.times_s == pytest.approx([0, 0.1, 0.15, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85])
        forward = pixels(clip)
        for number, (frame, truth) in enumerate(zip(clip.frames(), FRAMES, strict=True)):
            found = np.asarray(frame.image).astype(int)
            assert min(range(9), key=lambda k: np.abs(found - np.asarray(FRAMES[k])).mean()) == number
            if suffix in (".webp", ".png"):
                assert forward[number] == truth.tobytes()
        assert pixels(clip, reverse=True) == forward[::-1]
        assert pixels(clip, start=1, stop=8, stride=3, reverse=True) == forward[1:8:3][::-1]
        assert clip.frame(4).image.tobytes() == forward[4]  # type: ignore[union-attr]


def test_transparent_parts_of_an_animation_are_white(tmp_path: Path) -> None:
    clear = [Image.new("RGBA", (8, 8), (200, 0, 0, alpha)) for alpha in (0, 255)]
    clear[0].save(tmp_path / "a.png", save_all=True, append_images=clear[1:], duration=100)
    with opened(tmp_path / "a.png") as clip:
        colours = [frame.image.getpixel((3, 3)) for frame in clip.frames() if frame.image]
    assert colours == [(255, 255, 255), (200, 0, 0)]


def test_the_separate_still_of_an_apng_is_no_frame(tmp_path: Path) -> None:
    still = Image.new("RGB", FRAMES[0].size, "red")
    still.save(tmp_path / "a.png", save_all=True, append_images=FRAMES[:3], default_image=True, duration=100)
    with opened(tmp_path / "a.png") as clip:
        assert pixels(clip) == [frame.tobytes() for frame in FRAMES[:3]]
        assert clip.index.times_s == pytest.approx([0, 0.1, 0.2])


def test_orientation_of_an_animation_is_applied_once(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save_animation(tmp_path / "a.webp", duration=100, exif=exif)
    with opened(tmp_path / "a.webp") as clip, opened(tmp_path / "a.webp", exif="ignore") as ignored:
        assert (clip.index.height, clip.index.width, clip.index.orientation) == (128, 96, 6)
        assert np.array_equal(np.asarray(clip.frame(2).image), np.rot90(scene(2), -1))
        assert np.array_equal(np.asarray(ignored.frame(2).image), scene(2))


def test_a_cut_animation_keeps_the_frames_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    save_animation(path, duration=100)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with opened(path) as clip:
        assert 2 <= clip.index.count <= 6
        assert clip.index.problem is not None
        assert clip.index.problem.startswith(f"the frames from {clip.index.count} on are lost: ")
        assert pixels(clip) == [frame.tobytes() for frame in FRAMES[: clip.index.count]]


def test_an_animation_that_cannot_be_read_has_its_reason(tmp_path: Path) -> None:
    save_animation(tmp_path / "a.gif", duration=100)
    with pytest.raises(SourceError, match="--max-pixels"):
        opened(tmp_path / "a.gif", max_pixels=100)
    (tmp_path / "b.gif").write_bytes((tmp_path / "a.gif").read_bytes()[:900])
    with pytest.raises(SourceError, match="truncated"):
        opened(tmp_path / "b.gif")


# --- folders of frames ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "bear"
    root.mkdir()
    for number in (1, 2, 10):
        FRAMES[number % 9].save(root / f"{number}.png")
    (root / ".DS_Store").touch()
    (root / "notes.txt").touch()
    return root


def test_a_folder_is_a_clip_in_natural_order(folder: Path) -> None:
    with opened(folder) as clip:
        assert clip.index.names == ("1.png", "2.png", "10.png")
        assert clip.index.times_s == (None, None, None)
        assert (clip.index.height, clip.index.width) == (96, 128)
        assert pixels(clip) == [FRAMES[number].tobytes() for number in (1, 2, 1)]
        assert pixels(clip, reverse=True) == pixels(clip)[::-1]


def test_a_frame_that_fails_is_one_frame(folder: Path) -> None:
    Image.new("RGB", (5, 7)).save(folder / "3.png")
    (folder / "4.png").write_text("no picture")
    with opened(folder) as clip:
        frames = list(clip.frames())
    assert [frame.index for frame in frames if frame.image] == [0, 1, 4]
    assert frames[2].error == "this frame is 5 x 7, the clip's first 128 x 96"
    assert "not a picture" in (frames[3].error or "")


def test_frames_of_a_folder_are_upright(folder: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for path in folder.glob("*.png"):
        FRAMES[0].save(path, exif=exif)
    with opened(folder) as clip:
        assert (clip.index.height, clip.index.width, clip.index.orientation) == (128, 96, 6)
        assert np.array_equal(np.asarray(clip.frame(0).image), np.rot90(scene(0), -1))


def test_a_folder_without_a_readable_picture_has_its_reason(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="it holds no picture"):
        opened(tmp_path)
    (tmp_path / "a.jpg").touch()
    with pytest.raises(SourceError, match="not one of its pictures can be read: the file is empty"):
        opened(tmp_path)


def test_digest_of_a_clip(folder: Path) -> None:
    first = clip_sha256(folder)
    (folder / "notes.txt").write_text("changed")
    assert clip_sha256(folder) == first
    (folder / "2.png").rename(folder / "3.png")
    renamed = clip_sha256(folder)
    (folder / "3.png").write_bytes((folder / "1.png").read_bytes())
    assert len({first, renamed, clip_sha256(folder)}) == 3
    assert clip_sha256(folder / "1.png") == file_sha256(folder / "1.png")


# --- which are clips ------------------------------------------------------------------------------------------------


def test_clips_below_a_folder(tmp_path: Path) -> None:
    for name in ("v/b10.mp4", "v/b9.MOV", "v/cover.jpg", "v/b9.MOV.seeds.json", "seeds.json", "v/.hidden.mp4", "x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for name in ("davis/bear/0.jpg", "davis/bear/1.jpg", "davis/cat/0.png", "davis/list.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name) if "." + name[-3:] != ".txt" else (tmp_path / name).touch()
    (tmp_path / "gifs").mkdir()
    save_animation(tmp_path / "gifs" / "a.gif", duration=100)
    Image.new("RGB", (4, 4)).save(tmp_path / "gifs" / "still.gif")
    found = find_clips(tmp_path)
    assert [item.key for item in found.items] == ["davis/bear", "davis/cat", "gifs/a.gif", "v/b9.MOV", "v/b10.mp4"]
    assert [item.path for item in found.items] == [tmp_path / item.key for item in found.items]
    assert found.others == ((".gif", 1), (".jpg", 1), (".txt", 2))
    assert found.faults == ()


def test_the_root_may_be_a_folder_of_frames(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (item,) = find_clips(folder).items
    assert (item.key, item.path) == ("bear", folder)
    monkeypatch.chdir(folder)
    assert find_clips(Path()).items[0].key == "bear"
    (folder / "empty").mkdir()
    assert [item.key for item in find_clips(folder).items] == ["bear"]
    (folder / "more").mkdir()
    FRAMES[0].save(folder / "more" / "1.png")
    assert [item.key for item in find_clips(folder).items] == ["more"]


def test_one_file_is_the_one_clip(tmp_path: Path) -> None:
    render(tmp_path / "a.mp4", frames=3)
    (item,) = find_clips(tmp_path / "a.mp4").items
    assert item.key == "a.mp4"
    with opened(item.path) as clip:
        assert clip.index.count == 3
