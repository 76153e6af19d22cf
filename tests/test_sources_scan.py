"""Finding pictures and clips: order, links, hidden names, what cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permissions import as_nobody

from labeler.errors import SourceError, UsageError
from labeler.sources.digests import file_sha256
from labeler.sources.scan import find_pictures, natural_key


def keys(root: Path) -> list[str]:
    return [item.key for item in find_pictures(root).items]


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_pictures_of_all_folders_in_natural_order(tmp_path: Path) -> None:
    touch(
        tmp_path, "b10.jpg", "b9.JPG", "a/2.png", "a/10.png", "a/x/1.tif", "B1.jpeg", "notes.txt", "seeds.json", "v.mp4"
    )
    found = find_pictures(tmp_path)
    assert [item.key for item in found.items] == ["a/2.png", "a/10.png", "a/x/1.tif", "B1.jpeg", "b9.JPG", "b10.jpg"]
    assert [item.path for item in found.items] == [tmp_path / item.key for item in found.items]
    assert found.faults == ()
    assert found.others == ((".json", 1), (".mp4", 1), (".txt", 1))


def test_names_that_differ_in_case_extension_or_folder_only_are_different_items(tmp_path: Path) -> None:
    names = [
        "a.jpg",
        "A.jpg",
        "a.JPG",
        "a.png",
        "sub/a.jpg",
        "a.b.jpg",
        "ä ö.jpg",
        "日本.png",
        "with space.jpg",
        "q'\".jpg",
    ]
    touch(tmp_path, *names)
    assert sorted(keys(tmp_path)) == sorted(names)


def test_hidden_names_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", ".DS_Store", "._a.jpg", ".thumbs/b.jpg", "x/.c.png")
    assert find_pictures(tmp_path).others == ()
    assert keys(tmp_path) == ["a.jpg"]


def test_links_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    touch(tmp_path, "in/a/1.jpg", "elsewhere/2.jpg")
    (tmp_path / "in/a/up").symlink_to(tmp_path / "in", target_is_directory=True)
    (tmp_path / "in/self").symlink_to(".", target_is_directory=True)
    (tmp_path / "in/other").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "in/a", target_is_directory=True)
    (tmp_path / "in/nowhere.jpg").symlink_to(tmp_path / "gone.jpg")
    (tmp_path / "in/eats.jpg").symlink_to(tmp_path / "in/eats.jpg")
    found = find_pictures(tmp_path / "in")
    assert [item.key for item in found.items] == [
        "a/1.jpg",
        "eats.jpg",
        "nowhere.jpg",
        "other/2.jpg",
        "other/back/1.jpg",
    ]
    assert found.faults == ()


def test_one_file_is_the_one_item_whatever_its_name(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.jpg", "x/scan")
    for name in ("a.jpg", "scan"):
        (item,) = find_pictures(tmp_path / "x" / name).items
        assert (item.key, item.path) == (name, tmp_path / "x" / name)


def test_a_missing_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing-here: No such file or directory"):
        find_pictures(tmp_path / "nothing-here")


def test_an_unreadable_folder_is_a_fault_and_the_rest_is_found(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("open")
    touch(root, "a/1.jpg", "locked/2.jpg", "z/3.jpg")
    for folder in (root, root.parent):
        folder.chmod(0o755)
    (root / "locked").chmod(0)
    here = Path.cwd()
    os.chdir(root)
    try:
        with as_nobody():
            found = find_pictures(Path())
            with pytest.raises(UsageError, match="locked: Permission denied"):
                find_pictures(Path("locked"))
    finally:
        os.chdir(here)
        (root / "locked").chmod(0o755)
    assert [item.key for item in found.items] == ["a/1.jpg", "z/3.jpg"]
    assert found.faults == (("locked", "cannot be read: Permission denied"),)


def test_a_name_that_is_not_utf8_is_a_fault_that_can_be_written_down(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg")
    (tmp_path / os.fsdecode(b"bad\xff.jpg")).touch()
    (tmp_path / os.fsdecode(b"dir\xfe")).mkdir()
    found = find_pictures(tmp_path)
    assert [item.key for item in found.items] == ["a.jpg"]
    assert sorted(found.faults) == [
        ("bad\\udcff.jpg", "the name is not valid UTF-8: rename it"),
        ("dir\\udcfe", "the name is not valid UTF-8: rename it"),
    ]
    with pytest.raises(UsageError, match="not valid UTF-8"):
        find_pictures(tmp_path / os.fsdecode(b"dir\xfe"))


@given(st.lists(st.text("abAB1029.-/ ²٣", max_size=8), max_size=8))
def test_natural_order_is_total_and_splits_no_folder(names: list[str]) -> None:
    ordered = sorted(set(names), key=natural_key)
    assert ordered == sorted(sorted(set(names)), key=natural_key)
    folders = [name.split("/")[0] for name in ordered if "/" in name]
    assert len({*folders}) == len([n for i, n in enumerate(folders) if i == 0 or folders[i - 1] != n])


def test_digest_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(SourceError, match="No such file"):
        file_sha256(tmp_path / "b")
