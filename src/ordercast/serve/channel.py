"""One connection: frames of a head and a body, sealed with a key that both sides make anew for it.

Both send a nonce first. With a secret each side derives two keys from it and from both nonces, one a direction; every
frame is sealed with an AEAD under a counter, so nothing can be read, changed, replayed, cut out or put in by others.
Who does not have the secret does not get beyond the first frame. Without a secret, which only loopback allows, frames
are plain.

    hello    "OCSV", version u8, key id 4 bytes (zeros: none), nonce 16 bytes      from either side
    refusal  "OCSX", length u8, text                                               in place of the server's hello
    frame    length u32, then sealed: head length u32, head, body
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from os import urandom
from struct import Struct
from typing import Any

from cryptography.exceptions import InvalidTag

from ordercast.errors import AuthError, GroupError
from ordercast.wire.keys import Aead, GroupKey

MAGIC, REFUSED = b"OCSV", b"OCSX"
VERSION = 1
NONCE_BYTES = 16
HELLO = Struct("<4sB4s16s")
FRAME_BYTES_MAX = 2**28 + 2**20
"""The largest chunk, and what stands around it."""
HANDSHAKE_TIMEOUT_S = 5.0
_LENGTH = Struct("<I")
_NO_KEY = bytes(4)
_TAG_BYTES = 16

Buffer = bytes | bytearray | memoryview


class ChannelClosed(GroupError):
    """The other side has closed the connection, or it broke."""


class Channel:
    """Sends and receives frames. Made by `connect` and `accept`."""

    def __init__(self, sock: socket.socket, sealing: Aead | None, opening: Aead | None) -> None:
        self._sock = sock
        self._sealing, self._opening = sealing, opening
        self._sent = self._received = 0

    def send(self, head: bytes, body: Iterable[Buffer] = ()) -> None:
        parts: list[Buffer] = [_LENGTH.pack(len(head)), head, *body]
        if self._sealing is not None:
            nonce = self._sent.to_bytes(12, "little")
            parts = [self._sealing.encrypt(nonce, b"".join(parts), None)]
        self._sent += 1
        length = sum(map(len, parts))
        if length > FRAME_BYTES_MAX:
            raise GroupError(f"a frame of {length} bytes is more than {FRAME_BYTES_MAX}")
        try:
            _send_all(self._sock, [_LENGTH.pack(length), *parts])
        except OSError as error:
            raise ChannelClosed(f"the connection broke: {error.strerror or error}") from error

    def receive(self) -> tuple[bytes, memoryview]:
        """Head and body of the next frame."""
        (length,) = _LENGTH.unpack(_receive(self._sock, _LENGTH.size))
        if length > FRAME_BYTES_MAX:
            raise AuthError(f"a frame of {length} bytes: the other side does not speak this protocol")
        raw: Buffer = _receive(self._sock, length)
        if self._opening is not None:
            try:
                raw = self._opening.decrypt(self._received.to_bytes(12, "little"), bytes(raw), None)
            except InvalidTag:
                raise AuthError("the other side does not have the same key, or somebody tampered with it") from None
        self._received += 1
        view = memoryview(raw)
        (head,) = _LENGTH.unpack_from(view) if len(view) >= _LENGTH.size else (len(view),)
        if head > len(view) - _LENGTH.size:
            raise AuthError("a frame whose head is longer than itself")
        return bytes(view[_LENGTH.size : _LENGTH.size + head]), view[_LENGTH.size + head :]

    def patience(self, seconds: float | None) -> None:
        """How long one `receive` or `send` may wait."""
        self._sock.settimeout(seconds)

    def after_fork(self) -> None:
        """In a forked child: the connection goes on without it."""
        self._sock.close()

    def close(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def connect(sock: socket.socket, key: GroupKey | None) -> Channel:
    """The client's side of the handshake."""
    sock.settimeout(HANDSHAKE_TIMEOUT_S)
    mine = urandom(NONCE_BYTES)
    try:
        sock.sendall(HELLO.pack(MAGIC, VERSION, _key_id(key), mine))
    except OSError as error:
        raise ChannelClosed(f"the connection broke: {error.strerror or error}") from error
    magic = bytes(_receive(sock, 4))
    if magic == REFUSED:
        raise AuthError(bytes(_receive(sock, _receive(sock, 1)[0])).decode(errors="replace"))
    rest = bytes(_receive(sock, HELLO.size - 4))
    if magic != MAGIC:
        raise GroupError("what answers there is no member of an ordercast group")
    _, version, key_id, theirs = HELLO.unpack(magic + rest)
    if version != VERSION or key_id != _key_id(key):
        raise GroupError(f"the member speaks version {version} of this protocol, this program {VERSION}")
    return _channel(sock, key, mine, theirs, server=False)


def accept(sock: socket.socket, keys: Iterable[GroupKey]) -> Channel:
    """The server's side. Any of its keys will do; with none, none is asked for."""
    sock.settimeout(HANDSHAKE_TIMEOUT_S)
    magic, version, key_id, theirs = HELLO.unpack(bytes(_receive(sock, HELLO.size)))
    if magic != MAGIC:
        raise AuthError("not a client of ours")
    known: dict[bytes, GroupKey | None] = {_key_id(key): key for key in keys} or {_NO_KEY: None}
    if version != VERSION:
        raise _refuse(sock, f"the member speaks version {VERSION} of this protocol, not {version}")
    if key_id not in known:
        raise _refuse(sock, "the group has a key: use option key" if key_id == _NO_KEY else
                      "the group has no key" if _NO_KEY in known else "the group has another key")  # fmt: skip
    mine = urandom(NONCE_BYTES)
    sock.sendall(HELLO.pack(MAGIC, VERSION, key_id, mine))
    return _channel(sock, known[key_id], theirs, mine, server=True)


def _refuse(sock: socket.socket, reason: str) -> AuthError:
    text = reason.encode()
    sock.sendall(REFUSED + bytes([len(text)]) + text)
    return AuthError(reason)


def _key_id(key: GroupKey | None) -> bytes:
    return _NO_KEY if key is None else bytes.fromhex(key.id)


def _channel(sock: socket.socket, key: GroupKey | None, client: bytes, server_: bytes, *, server: bool) -> Channel:
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if key is None:
        return Channel(sock, None, None)
    to_server = key.cipher.make(key.derive("serve, to the member", 32, client, server_))
    to_client = key.cipher.make(key.derive("serve, to the client", 32, client, server_))
    return Channel(sock, to_client, to_server) if server else Channel(sock, to_server, to_client)


def _send_all(sock: socket.socket, parts: list[Any]) -> None:
    for at in range(0, len(parts), 512):
        group = [memoryview(part).cast("B") for part in parts[at : at + 512] if len(part)]
        while group:
            sent = sock.sendmsg(group)
            while group and sent >= len(group[0]):
                sent -= len(group.pop(0))
            if sent:
                group[0] = group[0][sent:]


def _receive(sock: socket.socket, size: int) -> bytearray:
    raw = bytearray(size)
    view, at = memoryview(raw), 0
    while at < size:
        try:
            count = sock.recv_into(view[at:])
        except TimeoutError:
            raise ChannelClosed("the other side does not answer") from None
        except OSError as error:
            raise ChannelClosed(f"the connection broke: {error.strerror or error}") from error
        if not count:
            raise ChannelClosed("the other side closed the connection")
        at += count
    return raw
