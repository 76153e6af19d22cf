"""`sam2label` with a snapshot after every third frame, so that short clips have some."""

from __future__ import annotations

from functools import partial

from labeler.cli import label, main

EVERY = 3

if __name__ == "__main__":
    label.ClipOptions = partial(label.ClipOptions, snapshot_every=EVERY)  # type: ignore[assignment,misc]
    main()
