"""Video files: the corpus, orientation, the same pixels in every way of reading, damage and what lies before it."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import av
import awkward
import numpy as np
import pytest
from numpy.typing import NDArray
from rendered_clips import HEIGHT, WIDTH, render, render_tone, scene, set_matrix

from labeler.errors import SourceError
from labeler.sources import clips
from labeler.sources.clips import Clip, open_clip
from labeler.sources.cut import is_cut_short
from labeler.sources.pictures import MAX_PIXELS
from labeler.sources.video import VideoClip

CORPUS = awkward.CORPUS / "videos"
EXPECTED = awkward.expected("videos")


def opened(path: Path, *, exif: str = "apply", max_pixels: int = MAX_PIXELS) -> Clip:
    return open_clip(path, exif=exif, max_pixels=max_pixels)  # type: ignore[arg-type]


def pixels(clip: Clip, **how: Any) -> list[bytes]:
    return [frame.image.tobytes() for frame in clip.frames(**how) if frame.image]


def array(clip: Clip, index: int) -> NDArray[np.int64]:
    frame = clip.frame(index)
    assert frame.image is not None
    return np.asarray(frame.image).astype(np.int64)


def reason(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        opened(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path.parent) not in text, "outputs must not depend on where the folder lies"
    return text


# --- the corpus -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_corpus_ends_as_an_independent_reader_saw_it(name: str) -> None:
    expected = EXPECTED[name]
    if not expected["decodes"]:
        reason(CORPUS / name)
        return
    with opened(CORPUS / name) as clip:
        index = clip.index
        assert index.count == expected["frames"]
        assert index.times_s[: len(expected["first_times"])] == pytest.approx(expected["first_times"], abs=6e-4)
        stored = (expected["stored_height"], expected["stored_width"])
        assert (index.height, index.width) == (stored[::-1] if expected["rotation"] else stored)
        assert index.problem is None
        forward = pixels(clip)
        assert pixels(clip, reverse=True) == forward[::-1]
        assert len(forward) == index.count


@pytest.mark.usefixtures("corpus_dir")
def test_every_corpus_clip_is_accounted_for() -> None:
    assert {path.name for path in CORPUS.iterdir()} - {"expected.json"} == set(EXPECTED)


@pytest.mark.usefixtures("corpus_dir")
def test_reasons_are_those_of_libav() -> None:
    assert reason(CORPUS / "truncated_no_index.mp4") == "not a video that can be read: moov atom not found"
    assert reason(CORPUS / "text_named.mp4").startswith("not a video that can be read: ")
    assert reason(CORPUS / "zero_bytes.mp4") == "the file is empty"


@pytest.mark.usefixtures("corpus_dir")
def test_the_rotated_clip_is_the_plain_one_turned_clockwise() -> None:
    with opened(CORPUS / "plain.mp4") as plain, opened(CORPUS / "rotated_90.mp4") as rotated:
        assert rotated.index.orientation == 6
        assert np.array_equal(array(rotated, 5), np.rot90(array(plain, 5), -1))
    with opened(CORPUS / "rotated_90.mp4", exif="ignore") as ignored:
        assert (ignored.index.height, ignored.index.width, ignored.index.orientation) == (240, 320, 6)
        assert np.array_equal(array(ignored, 5), np.rot90(array(rotated, 5)))


# --- orientation ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "plain.mp4"
    render(path, frames=30, container={"movflags": "faststart"})
    return path


def shown(stored: NDArray[np.int64], a: int, b: int, c: int, d: int) -> NDArray[np.int64]:
    """Each pixel at the place to which ISO/IEC 14496-12 moves it: x' = a x + c y, y' = b x + d y."""
    rows, columns = np.mgrid[: stored.shape[0], : stored.shape[1]]
    x, y = a * columns + c * rows, b * columns + d * rows
    x, y = x - x.min(), y - y.min()
    result = np.zeros((y.max() + 1, x.max() + 1, 3), np.int64)
    result[y, x] = stored
    return result


@pytest.mark.parametrize(
    ("orientation", "matrix"),
    [
        (1, (1, 0, 0, 1)),
        (2, (-1, 0, 0, 1)),
        (3, (-1, 0, 0, -1)),
        (4, (1, 0, 0, -1)),
        (5, (0, 1, 1, 0)),
        (6, (0, 1, -1, 0)),
        (7, (0, -1, -1, 0)),
        (8, (0, -1, 1, 0)),
    ],
)
def test_display_matrices_are_applied_once(
    plain: Path, tmp_path: Path, orientation: int, matrix: tuple[int, int, int, int]
) -> None:
    path = tmp_path / "turned.mp4"
    path.write_bytes(plain.read_bytes())
    set_matrix(path, *matrix)
    with opened(path) as clip, opened(plain) as stored, opened(path, exif="ignore") as ignored:
        wanted = shown(array(stored, 3), *matrix)
        assert (clip.index.height, clip.index.width) == wanted.shape[:2]
        assert clip.index.orientation == ignored.index.orientation == orientation
        assert np.array_equal(array(clip, 3), wanted)
        assert np.array_equal(array(ignored, 3), array(stored, 3))
    with av.open(str(path)) as container:
        turned = next(container.decode(video=0)).rotation
    if orientation in (1, 3, 6, 8):
        assert turned % 360 == {1: 0, 3: 180, 6: 270, 8: 90}[orientation]


def test_other_than_quarter_turns_are_refused(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "tilted.mp4"
    path.write_bytes(plain.read_bytes())
    set_matrix(path, 0.7071, 0.7071, -0.7071, 0.7071)
    assert "quarter turn: use --exif ignore" in reason(path)
    with opened(path, exif="ignore") as clip:
        assert clip.index.count == 30


# --- every way of reading gives the same pixels ---------------------------------------------------------------------

OPEN_GOP = {"x264-params": "open-gop=1:keyint=12:bframes=3:b-adapt=0"}
KINDS: dict[str, dict[str, Any]] = {
    "b-frames.mp4": {},
    "open-gop.mp4": {"options": OPEN_GOP},
    "open-gop.mkv": {"options": OPEN_GOP},
    "hevc-open-gop.mp4": {"codec": "libx265", "options": {"x265-params": "open-gop=1:keyint=12:log-level=none"}},
    "hevc-10-bit.mkv": {"codec": "libx265", "pixels": "yuv420p10le", "options": {"x265-params": "log-level=none"}},
    "uneven.mp4": {"milliseconds": [i * 40 + i * i for i in range(30)]},
    "vp9.webm": {"codec": "libvpx-vp9"},
    "mpeg4.avi": {"codec": "mpeg4", "b_frames": 2},
    "mpeg2.mpg": {"codec": "mpeg2video", "b_frames": 2},
    "h264.ts": {},
    "bare.h264": {},
    "refresh.mp4": {"options": {"x264-params": "intra-refresh=1:keyint=12:bframes=0"}},
    "444.mp4": {"pixels": "yuv444p"},
    "motion.avi": {"codec": "mjpeg", "pixels": "yuvj420p"},
    "raw.avi": {"codec": "rawvideo", "pixels": "bgr24"},
    "odd.mkv": {"codec": "ffv1", "pixels": "yuv444p", "height": 61, "width": 83},
}


@pytest.mark.parametrize("name", KINDS)
def test_backward_and_random_reading_give_the_pixels_of_forward_reading(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    render(tmp_path / name, frames=30, **KINDS[name])
    with opened(tmp_path / name) as clip:
        size = {"height": clip.index.height, "width": clip.index.width}
        monkeypatch.setattr(clips, "HELD_BYTES", size["height"] * size["width"] * 4 * 5)
        assert (clip.index.count, clip.index.problem) == (30, None)
        forward = pixels(clip)
        for index in (0, 7, 29):
            found = array(clip, index)
            assert min(range(30), key=lambda k: np.abs(found - scene(k, **size)).mean()) == index
            assert clip.frame(index).image.tobytes() == forward[index]  # type: ignore[union-attr]
        assert pixels(clip, reverse=True) == forward[::-1]
        assert pixels(clip, start=3, stop=28, stride=4) == forward[3:28:4]
        assert pixels(clip, start=3, stop=28, stride=4, reverse=True) == forward[3:28:4][::-1]


def test_reading_from_the_middle_seeks(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[int] = []
    decode = VideoClip._decode_from
    monkeypatch.setattr(VideoClip, "_decode_from", lambda self, entry: entries.append(entry) or decode(self, entry))
    with opened(plain) as clip:
        clip.frame(29)
    assert len(entries) == 1
    assert entries[0] >= 12


def test_a_wrong_keyframe_mark_costs_time_but_no_pixel(plain: Path) -> None:
    with opened(plain) as clip:
        assert isinstance(clip, VideoClip)
        forward = pixels(clip)
        # As if the file had marked every frame as one where decoding may begin, and the seek had believed it.
        clip._keys = type(clip._keys)("q", range(30))
        clip._pts = type(clip._pts)("q", [pts + 7 for pts in clip._pts])
        assert pixels(clip, start=20) == forward[20:]


def test_iterators_do_not_disturb_each_other(plain: Path) -> None:
    with opened(plain) as clip:
        forward, backward = pixels(clip), pixels(clip, reverse=True)
        pairs = [(a.image, b.image) for a, b in zip(clip.frames(), clip.frames(reverse=True), strict=True)]
        assert [a.tobytes() for a, _ in pairs if a] == forward
        assert [b.tobytes() for _, b in pairs if b] == backward


def test_leaving_the_clip_ends_its_iterators(plain: Path) -> None:
    def open_files() -> int:
        return sum(link.resolve() == plain.resolve() for link in Path("/proc/self/fd").iterdir())

    with opened(plain) as clip:
        running = clip.frames()
        next(running)
        assert open_files() == 1
    assert open_files() == 0
    assert list(running) == []


def test_a_backward_reader_holds_few_frames(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "HELD_BYTES", HEIGHT * WIDTH * 4 * 5)
    made: list[weakref.ref[Any]] = []
    convert = VideoClip._converted

    def counted(self: VideoClip, index: int, frame: av.VideoFrame) -> Any:
        converted = convert(self, index, frame)
        made.append(weakref.ref(converted.image))
        return converted

    monkeypatch.setattr(VideoClip, "_converted", counted)
    with opened(plain) as clip:
        most = max(sum(image() is not None for image in made) for _ in clip.frames(reverse=True))
    assert most <= 6


def test_frames_outside_the_clip_are_an_error(plain: Path) -> None:
    with opened(plain) as clip:
        assert list(clip.frames(5, 5)) == []
        for wrong in ({"start": -1}, {"stop": 31}, {"start": 9, "stop": 8}, {"stride": 0}):
            with pytest.raises(IndexError, match="of a clip of 30"):
                clip.frames(**wrong)
        with pytest.raises(IndexError):
            clip.frame(30)


def test_times_count_from_the_start_of_the_file(tmp_path: Path) -> None:
    render(tmp_path / "a.ts", frames=5)
    render(tmp_path / "a.mp4", frames=5, milliseconds=[0, 10, 500, 510, 9000])
    with opened(tmp_path / "a.ts") as clip:
        assert clip.index.times_s == pytest.approx([0, 0.04, 0.08, 0.12, 0.16])
    with opened(tmp_path / "a.mp4") as clip:
        assert clip.index.times_s == pytest.approx([0, 0.01, 0.5, 0.51, 9.0])
        assert [frame.time_s for frame in clip.frames(reverse=True)] == list(clip.index.times_s[::-1])


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.mp4", {"container": {"movflags": "faststart"}}),
        ("fragments.mp4", {"container": {"movflags": "frag_keyframe+empty_moov"}}),
        ("a.mkv", {}),
        ("a.webm", {"codec": "libvpx-vp9"}),
        (
            "hevc.mp4",
            {
                "codec": "libx265",
                "container": {"movflags": "faststart"},
                "options": KINDS["hevc-10-bit.mkv"]["options"],
            },
        ),
        ("a.avi", {"codec": "mpeg4", "b_frames": 2}),
    ],
)
def test_a_cut_file_keeps_the_frames_before_the_cut(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    path = tmp_path / name
    render(path, frames=30, **options)
    whole = path.read_bytes()
    with opened(path) as clip:
        complete = pixels(clip)
    kept = []
    for tenth in (3, 5, 7, 8, 9):
        path.write_bytes(whole[: len(whole) * tenth // 10])
        try:
            clip = opened(path)
        except SourceError:
            continue
        with clip:
            assert clip.index.problem is not None
            assert clip.index.problem.startswith(f"the frames from {clip.index.count} on are lost: ")
            assert pixels(clip) == complete[: clip.index.count]
            assert pixels(clip, reverse=True) == complete[: clip.index.count][::-1]
            kept.append(clip.index.count)
    assert kept == sorted(kept)
    assert len(kept) >= 3
    assert kept[-1] >= 18


def test_a_cut_between_two_packets_is_noticed(plain: Path, tmp_path: Path) -> None:
    with av.open(str(plain)) as container:
        places = [packet.pos for packet in container.demux(video=0) if packet.size]
    path = tmp_path / "a.mp4"
    path.write_bytes(plain.read_bytes()[: places[15]])
    with opened(path) as clip:
        assert clip.index.problem == f"the frames from {clip.index.count} on are lost: the file is cut short"
        assert 11 <= clip.index.count <= 15


def test_damage_in_the_middle_ends_the_clip_there(plain: Path, tmp_path: Path) -> None:
    with av.open(str(plain)) as container:
        places = [packet.pos for packet in container.demux(video=0) if packet.size]
    damaged = bytearray(plain.read_bytes())
    damaged[places[20] : places[21]] = b"\x55" * (places[21] - places[20])
    (tmp_path / "a.mp4").write_bytes(damaged)
    with opened(plain) as clip:
        complete = pixels(clip)
    with opened(tmp_path / "a.mp4") as clip:
        assert 16 <= clip.index.count <= 20
        assert "Invalid data" in (clip.index.problem or "")
        assert pixels(clip) == complete[: clip.index.count]


def test_a_recording_that_begins_inside_a_group_is_read(tmp_path: Path) -> None:
    render(tmp_path / "a.ts", frames=40)
    data = (tmp_path / "a.ts").read_bytes()
    (tmp_path / "b.ts").write_bytes(data[len(data) // 188 // 4 * 188 :])
    with opened(tmp_path / "b.ts") as clip:
        assert clip.index.problem is None
        assert clip.index.count >= 12
        assert np.abs(array(clip, clip.index.count - 1) - scene(39)).mean() < 9
        assert pixels(clip, reverse=True) == pixels(clip)[::-1]


def test_a_change_of_size_ends_the_clip_there(tmp_path: Path) -> None:
    render(tmp_path / "a.ts", frames=10)
    render(tmp_path / "b.ts", frames=10, height=48, width=64)
    (tmp_path / "c.ts").write_bytes((tmp_path / "a.ts").read_bytes() + (tmp_path / "b.ts").read_bytes())
    with opened(tmp_path / "c.ts") as clip:
        assert clip.index.problem == "the frames from 10 on are lost: the size changes from 128 x 96 to 64 x 48"
        assert len(pixels(clip)) == 10


def test_a_file_that_changes_while_it_is_read(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(plain.read_bytes())
    with opened(path) as clip:
        render(path, frames=5, codec="mpeg4")
        with pytest.raises(SourceError, match="the file changed while it was read"):
            pixels(clip, start=20)
        path.unlink()
        with pytest.raises(SourceError, match="No such file or directory"):
            pixels(clip)


def test_what_is_no_video_has_its_reason(tmp_path: Path) -> None:
    render_tone(tmp_path / "sound.mp4")
    os.mkfifo(tmp_path / "pipe.mp4")
    render(tmp_path / "unknown.mp4", frames=3)
    known = (tmp_path / "unknown.mp4").read_bytes()
    (tmp_path / "unknown.mp4").write_bytes(known.replace(b"avc1", b"zzz1"))
    assert reason(tmp_path / "unknown.mp4") == "its video is in a format that this build of libav cannot decode"
    assert reason(tmp_path / "sound.mp4") == "it holds no video"
    assert reason(tmp_path / "pipe.mp4") == "is not a regular file"
    assert reason(tmp_path / "missing.mp4") == "No such file or directory"


@pytest.mark.parametrize("name", ["a:b.mp4", "concat:x.mp4", "ä ö 日本.mp4", "%03d.mp4", "-i.mp4", "q'\"?#.mp4"])
def test_names_are_never_read_as_anything_but_names(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).write_bytes(plain.read_bytes())
    monkeypatch.chdir(tmp_path)
    with opened(Path(name)) as clip:
        assert clip.index.count == 30


def test_the_pixel_limit_names_its_option(plain: Path) -> None:
    with pytest.raises(SourceError, match="--max-pixels"):
        opened(plain, max_pixels=HEIGHT * WIDTH - 1)
    assert opened(plain, max_pixels=HEIGHT * WIDTH).index.count == 30


@pytest.mark.usefixtures("corpus_dir")
def test_libav_is_silent_and_its_settings_stay(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "cut.mp4").write_bytes(plain.read_bytes()[:9000])
    script = (
        "import sys, av\nfrom pathlib import Path\nfrom labeler.sources.clips import open_clip\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        sum(1 for _ in open_clip(Path(name), exif='apply', max_pixels=1 << 28).frames())\n"
        "    except Exception as error:\n        print(type(error).__name__)\n"
        "print(av.logging.get_level(), av.logging.get_skip_repeated())"
    )
    names = [str(path) for path in [*sorted(CORPUS.glob("*.m*")), tmp_path / "cut.mp4"]]
    done = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split() == ["SourceError"] * 3 + ["None", "True"]


@pytest.mark.parametrize(
    ("head", "cut"),
    [
        (b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x18mdat" + b"\0" * 16, False),
        (b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x19mdat" + b"\0" * 16, True),
        (b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x01mdat" + (25).to_bytes(8, "big") + b"\0" * 8, True),
        (b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\0mdat" + b"\0" * 16, False),
        (b"\0\0\0\x10ftypisom\0\0\0\0" + b"appended text", False),
        (b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\x84abcd", False),
        (b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\x85abcd", True),
        (b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\x01\xff\xff\xff\xff\xff\xff\xffabcd", False),
        (b"RIFF\x04\0\0\0AVI RIFF\x04\0\0\0AVIX", False),
        (b"RIFF\x04\0\0\0AVI RIFF\x05\0\0\0AVIX", True),
        (b"", False),
        (b"\x47" * 188, False),
    ],
)
def test_what_containers_say_of_their_length(tmp_path: Path, head: bytes, cut: bool) -> None:
    (tmp_path / "a").write_bytes(head)
    with (tmp_path / "a").open("rb") as stream:
        assert is_cut_short(stream) == cut
