"""The generators that training pipelines call: they yield records and write nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from labeler import seeds as seed_files
from labeler.images import ImageLabeler, ImageOptions
from labeler.model import load_model
from labeler.plan import plan_images
from labeler.sam2 import Sam2
from labeler.seeds import SeedFile
from labeler.types import Record, Seed


def label_images(
    root: str | Path,
    seeds: str | Path | Mapping[str, Sequence[Seed]],
    *,
    model: Sam2 | None = None,
    options: ImageOptions | None = None,
) -> Iterator[Record]:
    """Label the pictures below `root`, one record each, in natural order of their names.

    `seeds`: a seeds file, or seeds by posix path relative to `root`. Checked completely before the first picture
    is encoded: raises SeedError with all faults. A picture that cannot be read gives a failed record.
    """
    model = model or load_model()
    if isinstance(seeds, str | Path):
        seed_file = seed_files.load(Path(seeds))
    else:
        seed_file = SeedFile(Path("seeds"), {key: tuple(entry) for key, entry in seeds.items()}, "")
    labeler = ImageLabeler(model, options)
    plan = plan_images(Path(root), seed_file, bundle=model.runtime.bundle, options=labeler.options)
    return map(labeler.label, plan.tasks)
