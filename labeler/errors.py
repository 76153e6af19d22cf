"""Every error a user can cause, as one small tree.

A message names the file, the place in it and the remedy, on one line. Errors that list several faults
carry them in `faults`; `str()` joins them by newlines.
"""

from __future__ import annotations

from collections.abc import Sequence


class LabelerError(Exception):
    """Base of all errors raised on purpose by this package."""


class UsageError(LabelerError):
    """Options or paths that cannot work; nothing was labelled."""


class SeedError(UsageError):
    """One or more faults in a seeds file, all of them listed."""

    def __init__(self, faults: str | Sequence[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class BundleError(UsageError):
    """A model bundle that is missing, damaged, or does not fit its description."""

    def __init__(self, faults: str | Sequence[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class SourceError(LabelerError):
    """One picture or clip that cannot be read. Costs that item, never the run."""


class JournalError(UsageError):
    """A journal that is damaged, locked, or belongs to another kind of run."""


class AcceleratorError(UsageError):
    """The wanted accelerator cannot be had or computes something else than the CPU."""


class GraphError(LabelerError):
    """A graph that failed while it ran."""


class OutputError(LabelerError):
    """The output folder cannot be written (disk full, permission). The journal stays resumable."""


class ConvertError(UsageError):
    """A checkpoint that cannot be turned into a bundle, or a bundle that does not equal it."""
