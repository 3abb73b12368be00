"""A lake's folder: files that are staged out of sight, one atomic step that makes them count, and its redoing.

A commit writes `_lake/state.json` anew: how far the log is in the lake, what the next batch has to know of this one,
and which staged files go where. Only then are files moved. A start moves what a killed job left to move, and removes
what it staged in vain; so a job that is killed at any point has done either nothing or all of a batch.

Readers of Parquet pass over names that begin with `_`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import msgspec

from ordercast.spark.errors import SparkError

FORMAT = 1
STATE = Path("_lake/state.json")
LOCK = Path("_lake/lock")
STAGED = Path("_lake/staged")
NAME_DIGITS = 20
"""Of an offset in a file's name, so that names sort as offsets do."""


class LastOf(msgspec.Struct):
    """The last message of a sender that is in the lake."""

    seq: int
    stamp_us: int
    offset: int


class State(msgspec.Struct, omit_defaults=True):
    """What a lake knows of itself."""

    format: int = FORMAT
    group: str | None = None
    """None: there is no log in it, only traces."""
    bucket_us: int = 1_000_000
    start: int = 0
    end: int | None = None
    """The offset with which the next batch begins. None: there was none yet."""
    batches: int = 0
    newest_us: int = 0
    """The newest of the senders' clocks so far."""
    senders: dict[str, LastOf] = {}
    view: tuple[str, list[str]] | None = None
    """The last view's identifier and members."""
    views_ahead: dict[str, int] = {}
    """Views that are in the lake although they stand at `end` or behind it, and their offsets."""
    moves: list[tuple[str, str]] = []
    """Staged files and where they go; below the lake's folder."""
    removed: list[str] = []
    """Files whose rows are now in others."""


class Staged(msgspec.Struct, frozen=True):
    """A file that counts with the next commit."""

    source: str
    target: str


class Lake:
    """A lake that is open for writing, by this process alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        try:
            (self.folder / STAGED).mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / LOCK).open("w")
        except OSError as error:
            raise SparkError(f"the lake {folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise SparkError(f"the lake {folder}: another job is writing to it") from None
        try:
            self.state = read_state(self.folder) or State()
            self._apply()
            self.clear_staged()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.close()

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder for what the next commit moves."""
        place = self.folder / STAGED / uuid.uuid4().hex
        place.mkdir()
        yield place
        # Not after a failure: what is in it may be committed and not moved yet. The next start sees to it.
        shutil.rmtree(place, ignore_errors=True)

    def commit(self, state: State, staged: Iterable[Staged], removed: Iterable[str] = ()) -> None:
        """The one step: before it nothing of `staged` is in the lake, after it everything is."""
        files = list(staged)
        for folder in {Path(file.source).parent for file in files}:
            _sync(folder)
        moves = [(os.path.relpath(file.source, self.folder), file.target) for file in files]
        state = msgspec.structs.replace(state, moves=moves, removed=list(removed))
        _replace(self.folder / STATE, msgspec.json.format(msgspec.json.encode(state), indent=1))
        self.state = state
        self._apply()

    def _apply(self) -> None:
        """Does what the last commit says; all of it may have been done before."""
        folders = set()
        for source, target in self.state.moves:
            place = self.folder / target
            if (self.folder / source).exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                (self.folder / source).replace(place)
                folders.add(place.parent)
            elif not place.exists():
                raise SparkError(f"the lake {self.folder}: {target} was committed and is not there")
        for name in self.state.removed:
            (self.folder / name).unlink(missing_ok=True)
        for folder in folders:
            _sync(folder)

    def clear_staged(self) -> None:
        for place in (self.folder / STAGED).iterdir():
            shutil.rmtree(place, ignore_errors=True)


def read_state(folder: Path) -> State | None:
    """None where there is no lake yet."""
    try:
        data = (folder / STATE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        state = msgspec.json.decode(data, type=State)
    except msgspec.MsgspecError as error:
        raise SparkError(f"the lake {folder}: {STATE} is not one of ours ({error})") from None
    if state.format != FORMAT:
        raise SparkError(f"the lake {folder} has format {state.format}, and this version of ordercast knows {FORMAT}")
    return state


def messages_name(date: str, first: int, last: int) -> str:
    """Of the file with the messages of a date from offset `first` to `last`."""
    return f"messages/date={date}/{first:0{NAME_DIGITS}}-{last:0{NAME_DIGITS}}.parquet"


def messages_range(path: Path) -> tuple[int, int]:
    first, _, last = path.stem.partition("-")
    return int(first), int(last)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
