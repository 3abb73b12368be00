"""How commands find the members on a machine and ask them: a Unix socket each, in a directory of the user.

Whoever connects sends one line of JSON, `{"do": …}`, or nothing, closes his side, and gets one JSON object and the end
of the stream: for nothing the member's status, for a request the answer to it. A member that nobody asks pays nothing
for it: its thread waits in `accept`. The socket of a process that died refuses connections; whoever meets it takes it
away.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

_SUFFIX = ".member"
_DIRECTORY_VARIABLE = "ORDERCAST_RUNTIME_DIR"
_ANSWER_S = 3.0
"""How long an answer may take to be read, and to come."""
_ANSWER_BYTES_MAX = 4 << 20
_REQUEST_BYTES_MAX = 1 << 16
_numbers = count(1)

Request = Mapping[str, object]
Answers = Callable[[Request | None], Mapping[str, object]]
"""Answers a request, or with the status if there is none; called in the socket's thread, beside the running member."""


class Presence:
    """The socket of one member and the thread that answers at it, from construction to `close`.

    What keeps it from being made is left in `failure`: a member that cannot be asked is a member all the same.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._socket: socket.socket | None = None
        self._path: Path | None = None
        self.failure: str | None = None
        try:
            self._open()
        except OSError as error:
            self.failure = str(error)

    def _open(self) -> None:
        directory = own_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not trusted(directory):
            raise OSError(f"{directory} is not a directory that only its owner can use")
        _clear(directory)
        path = directory / f"{os.getpid()}-{next(_numbers)}{_SUFFIX}"
        path.unlink(missing_ok=True)  # of a process that died and had this number
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            listener.listen(8)
        except OSError:
            listener.close()
            raise
        self._socket, self._path = listener, path
        threading.Thread(target=self._answer, args=(listener,), name="ordercast status", daemon=True).start()

    def _answer(self, listener: socket.socket) -> None:
        with listener:
            while True:
                try:
                    asker, _ = listener.accept()
                except OSError:
                    return  # closed
                with asker, suppress(OSError):
                    asker.settimeout(_ANSWER_S)
                    asker.sendall(self._text(_read_all(asker, _REQUEST_BYTES_MAX)))

    def _text(self, request: bytes) -> bytes:
        try:
            asked = json.loads(request) if request else None
            if asked is not None and not isinstance(asked, dict):
                raise ValueError("a request is a JSON object")
            answer = {"pid": os.getpid(), **self._answers(asked)}
        except Exception as error:
            # The figures are read beside the running member, which may be in the middle of something.
            answer = {"pid": os.getpid(), "error": f"{type(error).__name__}: {error}"}
        return json.dumps(answer).encode()

    def close(self) -> None:
        """Once more is harmless."""
        listener, self._socket = self._socket, None
        if listener is None or self._path is None:
            return
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes it

    def after_fork(self) -> None:
        """In a forked child, which has no such thread: the socket stays the parent's alone."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def own_directory() -> Path:
    """Where the members of this user are found: where the environment says, or where such things are kept."""
    if said := os.environ.get(_DIRECTORY_VARIABLE):
        return Path(said)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "ordercast"
    return Path(f"/tmp/ordercast-{os.getuid()}")


def directories() -> list[Path]:
    """Where members may be found: of this user, however they were started; for root of every user."""
    if os.environ.get(_DIRECTORY_VARIABLE):
        return [own_directory()] if trusted(own_directory()) else []
    user = str(os.getuid()) if os.getuid() else "*"
    found = [own_directory(), *Path("/run/user").glob(f"{user}/ordercast"), *Path("/tmp").glob(f"ordercast-{user}")]
    return [directory for directory in dict.fromkeys(found) if trusted(directory)]


def trusted(directory: Path) -> bool:
    """Whether it is a directory of this user (or, for root, of anyone) that nobody else can write to or look into."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    mine = found.st_uid == os.getuid() or os.getuid() == 0
    return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & 0o077


def sockets() -> list[Path]:
    """Of all members that are, or were, on this machine."""
    return sorted(path for directory in directories() for path in directory.glob(f"*{_SUFFIX}"))


def ask(path: Path, request: Request | None = None) -> dict[str, object] | None:
    """The answer of the member at a socket; None if there is none any more. TimeoutError: it is there and is silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(_ANSWER_S)
        try:
            asker.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        except BlockingIOError:
            raise TimeoutError from None  # others ask already, and none gets an answer
        with suppress(BrokenPipeError):
            asker.sendall(b"" if request is None else json.dumps(request).encode())
        with suppress(OSError):
            asker.shutdown(socket.SHUT_WR)
        said = _read_all(asker, _ANSWER_BYTES_MAX)
    try:
        answer = json.loads(said)
    except ValueError:
        return None  # it left while it answered
    return answer if isinstance(answer, dict) else None


def members_of(group: str) -> dict[Path, dict[str, Any]]:
    """The members of a group on this machine that answer, by their sockets."""
    found = {path: ask_patiently(path) for path in sockets()}
    return {path: status for path, status in found.items() if status is not None and status.get("group") == group}


def ask_patiently(path: Path, request: Request | None = None) -> dict[str, Any] | None:
    """The same for who looks again later: None also of a member that does not answer."""
    try:
        return ask(path, request)
    except OSError:
        return None


def _read_all(connection: socket.socket, bytes_max: int) -> bytes:
    """To the end of the stream."""
    read = bytearray()
    with suppress(ConnectionResetError):
        while len(read) < bytes_max and (block := connection.recv(1 << 16)):
            read += block
    return bytes(read)


def _clear(directory: Path) -> None:
    """Takes away what members left behind that were killed."""
    for path in directory.glob(f"*{_SUFFIX}"):
        with suppress(OSError, ValueError):
            if not Path(f"/proc/{pid_of(path)}").exists():
                ask(path)  # which is sure; the process may be one of another namespace


def pid_of(path: Path) -> int:
    """The process that made a socket."""
    return int(path.name.partition("-")[0])
