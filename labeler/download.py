"""Fetch a bundle's files from a model hub into a folder, each checked against what the hub says of it."""

from __future__ import annotations

import errno
import hashlib
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labeler.bundle import FileSpec
from labeler.errors import BundleError

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Remote:
    """What the hub says of one file: `sha256` for large files, git's `blob_id` for small ones."""

    size: int | None
    sha256: str | None
    blob_id: str | None


@contextmanager
def exclusive(models_dir: Path, name: str) -> Iterator[None]:
    """One pull of a bundle at a time. Raises BundleError if another is at work or the folder cannot be made."""
    from filelock import FileLock, Timeout

    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        lock = FileLock(models_dir / f".{name}.lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise BundleError(f"{models_dir}: another pull of {name} is at work; wait for it to end") from None
    except OSError as error:
        raise BundleError(f"{models_dir}: cannot be written ({error.strerror}); give another folder") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def building(target: Path) -> Iterator[Path]:
    """A new hidden sibling of `target` to fill; gone afterwards unless it was `put` in place.

    Call it under `exclusive`: what lies there is then the rest of a pull that was killed. Turns a full or
    read-only disk into a BundleError.
    """
    folder = target.with_name(f".{target.name}.partial")
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        yield folder
    except OSError as error:
        raise BundleError(_disk(target.parent, error)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(folder: Path, target: Path) -> Path | None:
    """Give a finished folder its name. What stood there is moved aside, never deleted: returns where to."""
    aside = None
    if target.exists() or target.is_symlink():
        numbers = (target.with_name(f"{target.name}.damaged-{n}") for n in range(1, 1000))
        aside = next(path for path in numbers if not path.exists())
        target.replace(aside)
    folder.replace(target)
    return aside


def fetch(origin: str, files: Mapping[str, FileSpec], folder: Path, *, progress: Progress) -> dict[str, str]:
    """Download `files` of the repository `origin` (hf://owner/name) at one commit; returns where they came from.

    Offline, the hub's cache serves what it holds. Raises BundleError.
    """
    repository = origin.removeprefix("hf://")
    with _quiet_hub(), _translated(repository):
        commit, remotes = _listing(repository, files)
        if absent := sorted(files.keys() - remotes.keys()):
            raise BundleError(
                f"{repository}: has no {', '.join(absent)}; the publisher changed it, get a newer sam2label"
            )
        _check_room(folder, sum(remote.size or 0 for remote in remotes.values()))
        for count, name in enumerate(sorted(files), start=1):
            size = f" ({remotes[name].size / 1e6:.1f} MB)" if remotes[name].size else ""  # type: ignore[operator]
            progress(f"{count}/{len(files)} {name}{size}")
            _fetch_one(repository, commit, name, remotes[name], folder / name)
    return {"repository": repository, "commit": commit}


def _listing(repository: str, files: Mapping[str, FileSpec]) -> tuple[str, dict[str, _Remote]]:
    """The commit to pin and what it says of the files."""
    import huggingface_hub
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        info = huggingface_hub.HfApi().model_info(repository, files_metadata=True)
    except OfflineModeIsEnabled:
        return _cached_listing(repository, files)
    remotes = {
        sibling.rfilename: _Remote(
            sibling.size, sibling.lfs.sha256 if sibling.lfs else None, None if sibling.lfs else sibling.blob_id
        )
        for sibling in info.siblings or ()
        if sibling.rfilename in files
    }
    if info.sha is None:
        raise BundleError(f"{repository}: the hub names no commit; try again later")
    return info.sha, remotes


def _cached_listing(repository: str, files: Mapping[str, FileSpec]) -> tuple[str, dict[str, _Remote]]:
    """Offline: the commit that the cache holds, with the hashes after which it names its blobs."""
    import huggingface_hub

    paths = {name: Path(huggingface_hub.hf_hub_download(repository, name, local_files_only=True)) for name in files}
    commits = {path.parent.name for path in paths.values()}
    blobs = {name: path.resolve().name for name, path in paths.items()}
    return commits.pop(), {
        name: _Remote(paths[name].stat().st_size, blob if len(blob) == 64 else None, blob if len(blob) == 40 else None)
        for name, blob in blobs.items()
    }


def _fetch_one(repository: str, commit: str, name: str, remote: _Remote, target: Path) -> None:
    """Copy one file out of the hub's cache; a cached file that is damaged is downloaded once more."""
    import huggingface_hub

    for force in (False,) if huggingface_hub.constants.HF_HUB_OFFLINE else (False, True):
        cached = huggingface_hub.hf_hub_download(repository, name, revision=commit, force_download=force)
        shutil.copyfile(cached, target)
        if (fault := _mismatch(target, remote)) is None:
            return
    raise BundleError(f"{repository}: {name}: {fault}; the download is damaged, try again later or from another mirror")


def _mismatch(path: Path, remote: _Remote) -> str | None:
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"has {size} bytes, the hub says {remote.size}"
    with path.open("rb") as stream:
        if remote.sha256 is not None:
            found, expected = hashlib.file_digest(stream, "sha256").hexdigest(), remote.sha256
        elif remote.blob_id is not None:
            found, expected = hashlib.sha1(b"blob %d\0" % size + stream.read()).hexdigest(), remote.blob_id
        else:
            return None
    return None if found == expected else f"its hash is {found}, the hub says {expected}"


def _check_room(folder: Path, nbytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        raise OSError(errno.ENOSPC, f"{nbytes / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free", str(folder))


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Bars, log lines and warnings of the hub library would mix with the caller's lines; errors say what goes wrong."""
    from huggingface_hub.utils.logging import get_verbosity, set_verbosity
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    shown, verbosity = not are_progress_bars_disabled(), get_verbosity()
    disable_progress_bars()
    set_verbosity(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        set_verbosity(verbosity)
        if shown:
            enable_progress_bars()


@contextmanager
def _translated(repository: str) -> Iterator[None]:
    """Errors of huggingface_hub become one BundleError each; those of the disk pass through."""
    from huggingface_hub import errors

    # The HTTP library differs between versions of huggingface_hub; its base class is the first base of this one.
    transport: type[Exception] = errors.HfHubHTTPError.__mro__[1]
    # Only versions that can download through Xet have this one.
    xet: type[Exception] = getattr(errors, "XetDownloadError", OSError)
    remedy = "or get its files by other means into a folder and give that folder as --model"
    try:
        yield
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError):
        raise BundleError(
            f"{repository}: cannot be reached, and the cache does not hold it (offline mode or no network); "
            f"pull it once with a network, {remedy}"
        ) from None
    except errors.RepositoryNotFoundError:
        raise BundleError(f"{repository}: the hub has no such repository, or it is not public; {remedy[3:]}") from None
    except (OSError, ValueError, transport, xet) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise BundleError(f"{repository}: cannot be downloaded ({_first_line(error)}); try again, {remedy}") from None


def _disk(folder: Path, error: OSError) -> str:
    where = error.filename or folder
    return f"{where}: cannot be written ({error.strerror or error}); make room or give another folder, and pull again"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
