"""Before the first encode: which picture gets which seeds, and everything that is wrong, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labeler import seeds as seed_files
from labeler.bundle import Bundle
from labeler.errors import SeedError, SourceError, UsageError
from labeler.images import ImageOptions, ImageTask
from labeler.seeds import SeedFile
from labeler.segment import unservable
from labeler.sources.pictures import picture_size
from labeler.sources.scan import Scan, find_pictures


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """The work, and what did not fit together."""

    tasks: tuple[ImageTask, ...]
    unmatched: tuple[tuple[str, str | None], ...]
    """Entries of the seeds file that name no picture, with the nearest name that exists."""
    unseeded: tuple[str, ...]
    """Pictures that the seeds file does not mention."""
    unreadable: tuple[tuple[str, str], ...]
    """Folders that could not be looked into, with the reason."""


def plan_images(root: Path, seed_file: SeedFile, *, bundle: Bundle, options: ImageOptions) -> ImagePlan:
    """Match pictures below `root` with their seeds and check every seed against its picture's upright size.

    A picture that cannot be read stays in the plan: it ends as a failed record. Raises SeedError with all faults,
    UsageError if nothing can be labelled.
    """
    scan = find_pictures(root)
    match = seed_files.match(seed_file, [item.key for item in scan.items])
    where = str(seed_file.path)
    tasks = tuple(
        ImageTask(item, tuple(sorted(match.seeds[item.key], key=lambda seed: seed.object_id)))
        for item in scan.items
        if item.key in match.seeds
    )
    if not tasks:
        raise UsageError(_nothing(root, scan, match.unmatched, where))
    if faults := list(_faults(tasks, where, bundle, options)):
        raise SeedError(faults)
    return ImagePlan(tasks, match.unmatched, match.unseeded, scan.faults)


def _faults(tasks: Iterable[ImageTask], where: str, bundle: Bundle, options: ImageOptions) -> Iterable[str]:
    _, decode_role = bundle.still_roles()
    for task in tasks:
        place = f"{where}: {task.item.key!r}"
        yield from seed_files.check_still(task.seeds, place)
        yield from (f"{place}: {fault}" for seed in task.seeds if (fault := unservable(seed, bundle, decode_role)))
        try:
            info = picture_size(task.item.path, exif=options.exif, max_pixels=options.max_pixels)
        except SourceError:
            continue
        yield from seed_files.check_inside(task.seeds, height=info.height, width=info.width, where=place)


def _nothing(root: Path, scan: Scan, unmatched: Sequence[tuple[str, str | None]], where: str) -> str:
    if not scan.items:
        return f"{root}: holds no pictures"
    first, nearest = unmatched[0] if unmatched else ("", None)
    hint = f"; {first!r} is not there" + (f", nearest is {nearest!r}" if nearest else "") if first else ""
    return (
        f"{where}: none of its {len(unmatched)} entries names one of the {len(scan.items)} pictures below {root}{hint}"
    )
