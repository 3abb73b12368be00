"""Sealed packets and their keys: every packet is sealed, and opened at most once. `guard` is what hosts use.

A sealed packet, `OVERHEAD_BYTES` longer than the packet in it:

    bytes  field
    0      "OS", version, kind: 1 for all members, 3 for one
    4      key tag       2 bytes   which key of which group
    6      session       6 bytes   names transmitter and boot epoch, see HELLO
    12     counter       u64       of the packets that this session has sealed
    20     ciphertext
    -16    tag

Bytes 0 to 7 are the associated data and bytes 8 to 19 the nonce, so that every bit of the header is bound. To the
associated data of a packet for one member its name is added: a token that is led to another member stays shut. The
*session* of a transmitter begins when its process does: it draws an epoch of 128 random bits, and the key that seals is
derived from secret, group, name and epoch. Counters therefore start at 1 after every start without a nonce ever
coming again, and nothing has to be kept on a disk.

    HELLO  "OS", version, 2, key id 4 bytes, then sealed with AES-SIV, which needs no nonce, under a key of the group:
           epoch 16 bytes, challenge 16 bytes, counter u64, to 8 bytes, answer 16 bytes, flags u8 (1 ask), name

HELLOs prove that a session is live. Every process has a *challenge*, drawn at its start and again whenever it forgets a
session; it accepts a session on a HELLO that answers the challenge of the moment, and opens of it what was sealed
after that HELLO. So whatever was recorded before the receiver started, or belongs to a session that it has
forgotten, stays shut. docs/design/security.md has the argument. Nothing that is not authentic is answered or kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from ordercast.wire.ids import NAME_BYTES_MAX, NodeId, node_key
from ordercast.wire.keys import KEY_ID_BYTES, SEAL_VERSION, GroupKey, GroupKeyError
from ordercast.wire.layout import PACKET_BYTES_MAX, WireError
from ordercast.wire.replay import ReplayWindow
from ordercast.wire.totem import check_name

SEALED_MAGIC = b"OS"
HEADER_BYTES = 20
TAG_BYTES = 16
OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
EPOCH_BYTES = 16
CHALLENGE_BYTES = 16
COUNTER_MAX = 2**48
"""A session seals no more than this: at a million packets a second it would last for nine years."""

SILENT_TICKS_MAX = 240
"""A session whose HELLOs have been missing for so many of mine (60 s) is forgotten. Ticks: clocks may jump."""
SUPERSEDED_TICKS_MAX = 8
"""The same for a session whose process has a newer one. Not at once: two processes may claim one name."""
TRAIN_PACKETS_MAX = 128

PREFIX_BYTES = 12
_BOUND_BYTES = 8
KIND_PACKET, _KIND_HELLO, _KIND_DIRECT = 1, 2, 3
PACKET_MAGIC = SEALED_MAGIC + bytes((SEAL_VERSION, KIND_PACKET))
DIRECT_MAGIC = SEALED_MAGIC + bytes((SEAL_VERSION, _KIND_DIRECT))
HELLO_MAGIC = SEALED_MAGIC + bytes((SEAL_VERSION, _KIND_HELLO))
_HELLO = Struct("<16s16sQ8s16sB")
_HELLO_BYTES_MIN = 8 + TAG_BYTES + _HELLO.size + 1
HELLO_BYTES_MAX = _HELLO_BYTES_MIN + NAME_BYTES_MAX - 1
NOBODY = bytes(8)
NO_ANSWER = bytes(CHALLENGE_BYTES)
_ASK = 1
_nonce = Struct("<4sQ").pack


class CounterExhausted(GroupKeyError):
    """The session has sealed all that it may; the process must start anew."""


@lru_cache(maxsize=256)
def _cuts(segment: int, count: int) -> tuple[Struct, Struct]:
    """Readers of `count` sealed packets at one stroke: bound header, nonce and ciphertext; and the counters."""
    ciphertext = segment - HEADER_BYTES
    return Struct("<" + f"8s12s{ciphertext}s" * count), Struct("<" + f"12xQ{ciphertext}x" * count)


def direct(prefix: bytes) -> bytes:
    """The prefix that packets for one member have in place of `prefix`."""
    return DIRECT_MAGIC + prefix[len(DIRECT_MAGIC) :]


class Sealer:
    """Seals packets under one key of one session; its counter never stands still and never goes back."""

    __slots__ = ("_bound", "_bound_direct", "_encrypt", "_salt", "next", "prefix")

    def __init__(self, encrypt: Callable[[bytes, bytes, bytes], bytes], prefix: bytes) -> None:
        self._encrypt = encrypt
        self.prefix = prefix
        self._bound = prefix[:_BOUND_BYTES]
        self._bound_direct = direct(prefix)[:_BOUND_BYTES]
        self._salt = prefix[_BOUND_BYTES:]
        self.next = 1

    def take_counter(self, count: int = 1) -> int:
        first = self.next
        if first + count > COUNTER_MAX:
            raise CounterExhausted("this process has sealed as many packets as one start may; restart it")
        self.next = first + count
        return first

    def seal_train(self, data: bytes, segment: int, to: NodeId | None = None) -> tuple[bytes, int]:
        size = len(data)
        if not size or segment < 1:
            raise ValueError("an empty packet is not sealed")
        bound = associated = self._bound
        if to is not None:
            bound = self._bound_direct
            associated = bound + to.encode()
        if size <= segment:
            nonce = _nonce(self._salt, self.take_counter())
            return b"".join((bound, nonce, self._encrypt(nonce, data, associated))), size + OVERHEAD_BYTES
        count = -(-size // segment)
        first = self.take_counter(count)
        nonces = list(map(_nonce, repeat(self._salt, count), range(first, first + count)))
        packets = [data[at : at + segment] for at in range(0, size, segment)]
        parts = [bound] * (3 * count)
        parts[1::3] = nonces
        parts[2::3] = map(self._encrypt, nonces, packets, repeat(associated))
        return b"".join(parts), segment + OVERHEAD_BYTES


class Session:
    """One start of another process, accepted as live: what it seals can be opened, each packet once."""

    __slots__ = ("_associated_direct", "_decrypt", "heard", "hello", "name", "prefix", "transmitter", "window")

    def __init__(
        self, decrypt: Callable[[bytes, bytes, bytes], bytes], prefix: bytes, name: NodeId, me: NodeId, hello: int
    ) -> None:
        self._decrypt = decrypt
        self.prefix = prefix
        self.name = name
        self.transmitter = node_key(name)
        self._associated_direct = direct(prefix)[:_BOUND_BYTES] + me.encode()
        self.hello = hello
        """The counter of its latest HELLO."""
        self.heard = 0
        """The tick at which that came."""
        self.window = ReplayWindow(hello + 1)

    def open_train(self, data: bytes, segment: int) -> bytes | None:
        """The packets of a train for all that begins with this session's prefix, or None: look at each on its own.

        A train is opened as a whole if all its packets are genuine, new and consecutive. Until that is certain nothing
        is marked.
        """
        size = len(data)
        full = size // segment
        rest = size - full * segment
        if not OVERHEAD_BYTES < segment <= PACKET_BYTES_MAX or full > TRAIN_PACKETS_MAX or 0 < rest <= OVERHEAD_BYTES:
            return None
        cut, count_cut = _cuts(segment, full)
        fields, counters = cut.unpack_from(data), count_cut.unpack_from(data)
        bounds, nonces, ciphertexts = fields[0::3], fields[1::3], fields[2::3]
        if rest:
            at = full * segment
            bounds += (data[at : at + _BOUND_BYTES],)
            nonces += (data[at + _BOUND_BYTES : at + HEADER_BYTES],)
            ciphertexts += (data[at + HEADER_BYTES :],)
            counters += (int.from_bytes(nonces[-1][4:], "little"),)
            full += 1
        first = counters[0]
        if counters != tuple(range(first, first + full)) or not self.window.fresh(first, full):
            return None
        try:
            opened = b"".join(map(self._decrypt, nonces, ciphertexts, bounds))
        except InvalidTag:
            return None
        self.window.mark(first, full)
        return opened

    def open_packet(self, packet: bytes) -> bytes | str:
        """One packet with a prefix of this session's, and long enough; or the counter that tells why it stays shut."""
        nonce = packet[_BOUND_BYTES:HEADER_BYTES]
        counter = int.from_bytes(nonce[4:], "little")
        if not self.window.fresh(counter):
            return "replayed"
        try:
            direct = packet[3] == _KIND_DIRECT
            associated = self._associated_direct if direct else packet[:_BOUND_BYTES]
            opened = self._decrypt(nonce, packet[HEADER_BYTES:], associated)
        except InvalidTag:
            return "forged"
        self.window.mark(counter)
        return opened


class Hello(NamedTuple):
    """The fields of a HELLO; `to` is the session part of a prefix."""

    epoch: bytes
    challenge: bytes
    counter: int
    to: bytes
    answer: bytes
    ask: bool
    name: NodeId


class Realm:
    """One key in one group: this process's session under it, and the sessions of others that it has accepted."""

    def __init__(self, key: GroupKey, group: str, name: NodeId, random_bytes: Callable[[int], bytes]) -> None:
        self.key = key
        self.name = name
        self._group = group.encode()
        self._random_bytes = random_bytes
        self.id = key.derive("realm", KEY_ID_BYTES, self._group)
        self._siv = AESSIV(key.derive("hello", 64, self._group))
        self.epoch = random_bytes(EPOCH_BYTES)
        self.challenge = random_bytes(CHALLENGE_BYTES)
        prefix = self.prefix_of(name, self.epoch)
        self.sealer = Sealer(key.cipher.make(self._session_key(name, self.epoch)).encrypt, prefix)
        self.sessions: dict[bytes, Session] = {}
        self.newest: dict[NodeId, bytes] = {}
        """Of each name the prefix of the session that was accepted last."""

    def prefix_of(self, name: NodeId, epoch: bytes) -> bytes:
        session = sha256(self.id + epoch + name.encode()).digest()
        return PACKET_MAGIC + self.id[:2] + session[: PREFIX_BYTES - 6]

    def _session_key(self, name: NodeId, epoch: bytes) -> bytes:
        return self.key.derive("packets", 32, self._group, name.encode(), epoch)

    def seal_hello(self, to: bytes, answer: bytes, *, ask: bool) -> bytes:
        fields = _HELLO.pack(self.epoch, self.challenge, self.sealer.take_counter(), to, answer, _ASK if ask else 0)
        head = HELLO_MAGIC + self.id
        return head + self._siv.encrypt(fields + self.name.encode(), [head])

    def open_hello(self, packet: bytes) -> Hello | str:
        """A HELLO with the magic and id of this realm, or the counter that tells why it is none."""
        if len(packet) < _HELLO_BYTES_MIN:
            return "truncated"
        if len(packet) > HELLO_BYTES_MAX:
            return "oversized"
        try:
            text = self._siv.decrypt(packet[8:], [packet[:8]])
        except InvalidTag:
            return "forged"
        epoch, challenge, counter, to, answer, flags = _HELLO.unpack_from(text)
        try:
            name = check_name(text[_HELLO.size :].decode())
        except (UnicodeDecodeError, WireError):
            return "malformed"
        if flags & ~_ASK or counter >= COUNTER_MAX:
            return "malformed"
        return Hello(epoch, challenge, counter, to, answer, flags == _ASK, name)

    def accept(self, hello: Hello, prefix: bytes, tick: int) -> Session:
        """The session that `hello` proves live; what it sealed before that HELLO stays shut."""
        decrypt = self.key.cipher.make(self._session_key(hello.name, hello.epoch)).decrypt
        session = Session(decrypt, prefix, hello.name, self.name, hello.counter)
        session.heard = tick
        self.sessions[prefix] = session
        self.newest[hello.name] = prefix
        return session

    def forget(self, session: Session) -> None:
        """Drops a session and draws a new challenge, so that no answer given until now brings it back."""
        del self.sessions[session.prefix]
        if self.newest.get(session.name) == session.prefix:
            del self.newest[session.name]
        self.challenge = self._random_bytes(CHALLENGE_BYTES)

    def silent(self, tick: int) -> list[Session]:
        """Sessions of which no HELLO has come for too long."""
        gone = []
        for prefix, session in self.sessions.items():
            superseded = self.newest.get(session.name) != prefix
            if tick - session.heard > (SUPERSEDED_TICKS_MAX if superseded else SILENT_TICKS_MAX):
                gone.append(session)
        return gone
