"""The group's secret: its file, its identifier, and the keys that are derived from it.

A key file is text, four lines, so that it can be mailed, diffed and pasted:

    ordercast-key 1
    cipher aes-256-gcm
    secret <32 bytes in base64>
    check <key id> <digest of the lines above>

The secret itself seals nothing. HKDF-SHA256 derives from it one key for each purpose, bound to the group's name and
to the versions of the wire, so that groups that share a file do not share a key. Entropy is handed in.
"""

from __future__ import annotations

import stat
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ordercast.wire.layout import VERSION

SECRET_BYTES = 32
KEY_ID_BYTES = 4
KEY_FILE_BYTES_MAX = 4096
SEAL_VERSION = 1

_TITLE = b"ordercast-key"
_FORMAT = b"1"
_SALT = b"ordercast sealed packets"

Aead = AESGCM | ChaCha20Poly1305


class Cipher(Enum):
    """How packets are sealed; a property of the key, so that a group always agrees on it."""

    AES_256_GCM = "aes-256-gcm"
    CHACHA20_POLY1305 = "chacha20-poly1305"

    def make(self, key: bytes) -> Aead:
        return AESGCM(key) if self is Cipher.AES_256_GCM else ChaCha20Poly1305(key)


class GroupKeyError(ValueError):
    """A key that cannot be used; the message is one line for a person."""


class KeyFileMissing(GroupKeyError):
    """There is no such file."""


class KeyFileUnreadable(GroupKeyError):
    """The file is there and the system does not let it be read."""


class KeyFormatWrong(GroupKeyError):
    """The text is no key file, or a damaged one."""


class KeyLengthWrong(GroupKeyError):
    """The secret does not have 32 bytes."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group's secret. `warnings` tell what is wrong with the file that it came from; it is usable all the same."""

    secret: bytes = field(repr=False)
    cipher: Cipher = Cipher.AES_256_GCM
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise KeyLengthWrong(f"the group's secret has {SECRET_BYTES} bytes, not {len(self.secret)}")

    @property
    def id(self) -> str:
        """Names the key in files, status and logs; tells nothing about the secret."""
        return self.derive("key id", KEY_ID_BYTES).hex()

    def derive(self, purpose: str, size: int, *context: bytes) -> bytes:
        """`size` bytes for one purpose. Each part of the context is preceded by its length, so that none runs over."""
        parts = (purpose.encode(), self.cipher.value.encode(), bytes((VERSION, SEAL_VERSION)), *context)
        info = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        return HKDF(algorithm=SHA256(), length=size, salt=_SALT, info=info).derive(self.secret)


def generate_key(random_bytes: bytes | Callable[[int], bytes], cipher: Cipher = Cipher.AES_256_GCM) -> bytes:
    """The contents of a new key file, from 32 random bytes or from what draws them."""
    secret = random_bytes if isinstance(random_bytes, bytes) else random_bytes(SECRET_BYTES)
    return _text(GroupKey(secret, cipher))


def load_key(source: str | Path | bytes) -> GroupKey:
    """A key from its file, from the file's contents, or from the 32 bytes of a secret."""
    if isinstance(source, bytes):
        return GroupKey(source) if len(source) == SECRET_BYTES else _parse(source, "the key")
    path = Path(source)
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            text = file.read(KEY_FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise KeyFileMissing(f"there is no key file {_one_line(path)}; `ordercast keygen FILE` makes one") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no file name"
        raise KeyFileUnreadable(f"cannot read key file {_one_line(path)}: {reason}") from error
    key = _parse(text, f"key file {_one_line(path)}")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        warning = f"key file {_one_line(path)} is open to others (mode {mode & 0o777:04o}); make it 0600"
        return GroupKey(key.secret, key.cipher, (warning,))
    return key


def _one_line(path: Path) -> str:
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(path))


def _text(key: GroupKey) -> bytes:
    body = b"%s %s\ncipher %s\nsecret %s\n" % (_TITLE, _FORMAT, key.cipher.value.encode(), b64encode(key.secret))
    return body + b"check %s %s\n" % (key.id.encode(), _check(body))


def _check(body: bytes) -> bytes:
    return sha256(b"ordercast key file\0" + body).hexdigest()[:16].encode()


def _parse(text: bytes, what: str) -> GroupKey:
    """The key in a file's text; line ends of another system and spaces at the ends of lines do no harm."""
    lines = text[: KEY_FILE_BYTES_MAX + 1].split(b"\n")
    rows = [line.split() for line in lines if line.strip()]
    if len(text) > KEY_FILE_BYTES_MAX or not rows or rows[0][0] != _TITLE:
        raise KeyFormatWrong(f"{what} is no ordercast key: the first line is not '{_TITLE.decode()} 1'")
    if rows[0][1:] != [_FORMAT]:
        raise KeyFormatWrong(f"{what} is of another version of the format than {_FORMAT.decode()}")
    names = [row[0] for row in rows[1:]]
    if names != [b"cipher", b"secret", b"check"] or [len(row) for row in rows[1:]] != [2, 2, 3]:
        raise KeyFormatWrong(f"{what} is damaged: it does not consist of the lines cipher, secret and check")
    try:
        cipher = Cipher(rows[1][1].decode("ascii", "replace"))
    except ValueError as error:
        raise KeyFormatWrong(f"{what} asks for a cipher that this version does not have") from error
    try:
        secret = b64decode(rows[2][1], validate=True)
    except ValueError as error:
        raise KeyFormatWrong(f"{what} is damaged: its secret is not base64") from error
    if len(secret) != SECRET_BYTES:
        raise KeyLengthWrong(f"{what} holds a secret of {len(secret)} bytes; it must have {SECRET_BYTES}")
    key = GroupKey(secret, cipher)
    expected = _text(key).split()[-2:]
    if not all(compare_digest(have, want) for have, want in zip(rows[3][1:], expected, strict=True)):
        raise KeyFormatWrong(f"{what} is damaged: its check does not fit its contents")
    return key
