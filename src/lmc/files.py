"""Files that appear whole or not at all; errors of others in one line."""

from __future__ import annotations

import errno
import os
import re
import site
import stat
import sysconfig
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path

from lmc.errors import GraphError
from lmc.tidying import tidying

LARGEST_TEXT = 64 << 20
"""The most bytes of a text file that is read whole; the library's own have some thousands."""

LONGEST_LINE = 300
"""The most characters of another library's error message: some quote the whole file."""


def regular(file: Path) -> Path:
    """The file itself; OSError where it is something else, such as a pipe, which would never end.

    >>> regular(Path("/"))
    Traceback (most recent call last):
    OSError: not a regular file
    """
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError("not a regular file")
    return file


def read_text_bytes(file: Path) -> bytes:
    """All bytes of a text file; OSError if it is not a regular file, or larger than any of ours."""
    with open(regular(file), "rb") as opened:
        content = opened.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise OSError(f"larger than {LARGEST_TEXT >> 20} MB")
    return content


def check_writable(folder: Path) -> None:
    """Raise OSError where no file can be made in a folder, or the folder itself not."""
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "closed to writing", str(existing))


def sync(file: Path) -> None:
    """Have the disk confirm what was written to a file."""
    with open(file, "r+b") as opened:
        os.fsync(opened.fileno())


def write_synced(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file and have the disk confirm it; what cannot be written whole is removed again."""
    try:
        with open(file, "wb") as opened:
            write(opened)
        sync(file)
    except BaseException:
        file.unlink(missing_ok=True)
        raise


@contextmanager
def partial_file(file: Path) -> Iterator[Path]:
    """A hidden path beside a file, to write it under; what is still there at the end is removed."""
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex}.partial")
    with tidying(lambda: partial.unlink(missing_ok=True)):
        yield partial


UNFINISHED = ".unfinished"
"""After the name of a header: there while its folder is filled, so that what a kill leaves is ours."""


@contextmanager
def filling(folder: Path, header: str) -> Iterator[None]:
    """Make a folder, and mark it until all is in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, filling(Path(folder), "all.json"):
    ...     [file.name for file in Path(folder).iterdir()]
    ['all.json.unfinished']
    """
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / (header + UNFINISHED)
    mark.touch()
    yield
    mark.unlink(missing_ok=True)


def check_fillable(folder: Path, header: str, what: str) -> None:
    """Raise GraphError where a folder holds what others have put there, or cannot be looked at.

    Args:
        folder: which may hold files if it has the header, or the mark of a process that was killed.
        header: the name of the file that is written last.
        what: it would be then.
    """
    try:
        names = sorted(file.name for file in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise GraphError(f"{folder}: cannot be written ({one_line(error)})") from None
    if names and header not in names and header + UNFINISHED not in names:
        raise GraphError(f"{folder}: holds {names[0]!r} and is not {what}; nothing was written")


def remove_partial_files(folder: Path) -> None:
    """Remove what processes that were killed have left in a folder; files of others stay."""
    for file in folder.glob(".*.partial"):
        if re.fullmatch(r"\..*\.[0-9a-f]{32}\.partial", file.name):
            file.unlink(missing_ok=True)


def put_in_place(partial: Path, file: Path) -> None:
    """Have the disk confirm a partial file, and then give it its name at once."""
    sync(partial)
    os.replace(partial, file)


def write_atomically(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write under another name first, so that no reader and no crash sees half a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a", lambda file: file.write(b"whole"))
    ...     (Path(folder) / "a").read_bytes()
    b'whole'
    """
    with partial_file(file) as partial:
        with open(partial, "wb") as opened:
            write(opened)
        put_in_place(partial, file)


def cache_folder() -> Path:
    """`$LMC_CACHE`, or `lmc` in the user's cache folder."""
    own = os.environ.get("LMC_CACHE")
    return expanded(Path(own) if own else user_cache_path("lmc", appauthor=False))


def expanded(path: Path) -> Path:
    """The path with the home folder for a leading `~`, where there is such a user."""
    try:
        return path.expanduser()
    except RuntimeError:  # there is no such user
        return path


def one_line(error: BaseException) -> str:
    """The reason of an error, in one line."""
    text = str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    first = text.splitlines()[0]
    return first if len(first) <= LONGEST_LINE else f"{first[:LONGEST_LINE]}..."


def raised_text(error: BaseException) -> str:
    """What was raised, and where in the user's own code, in a line."""
    place = place_in_own_code(error)
    return f"{type(error).__name__}: {one_line(error)}" + ("" if place is None else f" ({place})")


def place_in_own_code(error: BaseException) -> str | None:
    """`file:line, in function`, the deepest that is neither of Python, nor installed, nor ours; or None."""
    python = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    others = [Path(__file__).parent, *map(Path, [*python, *installed])]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_file() and not any(file.is_relative_to(folder) for folder in others):
            return f"{file}:{frame.lineno}, in {frame.name}"
    return None
