"""The key file: what it holds, and one clear line for each way in which it can be wrong."""

from __future__ import annotations

import argparse
import json
import os
import stat
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

import pytest

from ordercast.cli import keygen
from ordercast.wire.keys import (
    Cipher,
    GroupKey,
    GroupKeyError,
    KeyFileMissing,
    KeyFileUnreadable,
    KeyFormatWrong,
    KeyLengthWrong,
    generate_key,
    load_key,
)

SECRET = bytes(range(32))
FILE = generate_key(SECRET)


def test_a_key_file_is_four_lines_of_text() -> None:
    assert FILE.decode() == (
        "ordercast-key 1\n"
        "cipher aes-256-gcm\n"
        "secret AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
        f"check {GroupKey(SECRET).id} {FILE.decode().split()[-1]}\n"
    )
    assert len(FILE.splitlines()) == 4


def test_a_key_comes_from_its_file_its_text_or_its_secret(tmp_path: Path) -> None:
    path = tmp_path / "group.key"
    path.write_bytes(FILE)
    path.chmod(0o600)
    assert load_key(path) == load_key(str(path)) == load_key(FILE) == load_key(SECRET) == GroupKey(SECRET)
    assert load_key(path).warnings == ()
    assert load_key(FILE.replace(b"\n", b"\r\n") + b"\n\n") == GroupKey(SECRET)
    other = generate_key(SECRET, Cipher.CHACHA20_POLY1305)
    assert load_key(other) == GroupKey(SECRET, Cipher.CHACHA20_POLY1305)
    assert load_key(other).id != load_key(FILE).id


def test_new_keys_differ() -> None:
    assert len({generate_key(os.urandom) for _ in range(100)}) == 100


def test_a_key_does_not_show_its_secret() -> None:
    assert "secret" not in repr(GroupKey(SECRET))
    assert b64encode(SECRET).decode() not in repr(GroupKey(SECRET))
    assert GroupKey(SECRET).id not in SECRET.hex()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604])
def test_a_file_that_is_open_to_others_is_warned_of(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "group.key"
    path.write_bytes(FILE)
    path.chmod(mode)
    (warning,) = load_key(path).warnings
    assert f"{mode:04o}" in warning
    assert "0600" in warning
    assert load_key(path) == GroupKey(SECRET)


WRONG = {
    "empty": (b"", KeyFormatWrong),
    "blank": (b"\n\n \n", KeyFormatWrong),
    "something else": (b"-----BEGIN PRIVATE KEY-----\n", KeyFormatWrong),
    "binary": (bytes(range(256)), KeyFormatWrong),
    "another version": (FILE.replace(b"key 1", b"key 2"), KeyFormatWrong),
    "huge": (FILE + b"\n" * 5000, KeyFormatWrong),
    "a line too many": (FILE + b"more\n", KeyFormatWrong),
    "another cipher": (FILE.replace(b"aes-256-gcm", b"rot-13"), KeyFormatWrong),
    "a cipher that is not ASCII": (FILE.replace(b"aes-256-gcm", b"\xff\xfe"), KeyFormatWrong),
    "a wrong check": (FILE[:-3] + b"00\n", KeyFormatWrong),
    "another secret": (FILE.replace(b"AAEC", b"AAED"), KeyFormatWrong),
    "not base64": (FILE.replace(b"AAEC", b"A!EC"), KeyFormatWrong),
    "a short secret": (FILE.replace(b64encode(SECRET), b64encode(SECRET[:16])), KeyLengthWrong),
    "a long secret": (FILE.replace(b64encode(SECRET), b64encode(SECRET * 2)), KeyLengthWrong),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    text, error = WRONG[case]
    path = tmp_path / "group.key"
    path.write_bytes(text)
    for source in (path, text):
        with pytest.raises(error) as caught:
            load_key(source)
        line = str(caught.value)
        assert "\n" not in line
        assert 10 < len(line) < 300
        assert b64encode(SECRET).decode() not in line


def test_every_truncation_of_a_file_is_refused() -> None:
    for size in range(len(FILE) - 1):
        if size != 32:
            with pytest.raises(GroupKeyError):
                load_key(FILE[:size])


def test_every_flipped_bit_of_a_file_is_refused_or_harmless() -> None:
    for at in range(len(FILE)):
        for bit in range(8):
            text = FILE[:at] + bytes((FILE[at] ^ 1 << bit,)) + FILE[at + 1 :]
            with suppress(GroupKeyError):
                assert load_key(text) == GroupKey(SECRET), "white space at most"


def test_a_missing_or_unreadable_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(KeyFileMissing, match="keygen") as caught:
        load_key(tmp_path / "absent\nkey")
    assert "\n" not in str(caught.value)
    with pytest.raises(KeyFileUnreadable, match="directory"):
        load_key(tmp_path)
    with pytest.raises(KeyFileUnreadable):
        load_key("a\0b")
    with pytest.raises(KeyFileUnreadable):
        load_key(tmp_path / ("x" * 5000))


def test_a_file_without_permission_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal is put in by hand."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(KeyFileUnreadable, match="Permission denied"):
        load_key(tmp_path / "group.key")


def test_a_secret_of_another_length_is_refused() -> None:
    for size in (0, 16, 31, 33, 64):
        with pytest.raises(KeyLengthWrong):
            GroupKey(bytes(size))


def test_derived_keys_depend_on_purpose_context_and_cipher() -> None:
    key = GroupKey(SECRET)
    derived = [
        key.derive("packets", 32, b"ab", b"c"),
        key.derive("packets", 32, b"a", b"bc"),
        key.derive("packets", 32, b"abc"),
        key.derive("packets", 32, b"abc", b""),
        key.derive("hello", 32, b"ab", b"c"),
        GroupKey(SECRET, Cipher.CHACHA20_POLY1305).derive("packets", 32, b"ab", b"c"),
        GroupKey(bytes(32)).derive("packets", 32, b"ab", b"c"),
    ]
    assert len(set(derived)) == len(derived)
    assert derived[0] == key.derive("packets", 32, b"ab", b"c")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def run(*arguments: object) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        keygen.add_parser(parser.add_subparsers())
        args = parser.parse_args(["keygen", *map(str, arguments)])
        status = args.run(args)
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


def test_keygen_makes_a_file_for_its_owner_alone(tmp_path: Path, run) -> None:
    path = tmp_path / "group.key"
    before = os.umask(0)
    try:
        status, out, err = run(path)
    finally:
        os.umask(before)
    key = load_key(path)
    assert (status, err) == (0, "")
    assert out == f"{path}: new group secret, key {key.id}, aes-256-gcm, mode 0600\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key.warnings == ()
    assert b64encode(key.secret).decode() not in out


def test_keygen_reports_as_json(tmp_path: Path, run) -> None:
    path = tmp_path / "group.key"
    status, out, _ = run(path, "--json", "--cipher", "chacha20-poly1305")
    assert status == 0
    assert json.loads(out) == {"file": str(path), "id": load_key(path).id, "cipher": "chacha20-poly1305"}


def test_keygen_overwrites_nothing(tmp_path: Path, run) -> None:
    path = tmp_path / "group.key"
    path.write_bytes(b"precious")
    link = tmp_path / "link.key"
    link.symlink_to(tmp_path / "elsewhere")
    for target in (path, link):
        status, out, err = run(target)
        assert (status, out) == (2, "")
        assert err == f"ordercast keygen: {target} is there already; it is left as it is\n"
    assert path.read_bytes() == b"precious"
    assert not (tmp_path / "elsewhere").exists()


def test_keygen_says_in_one_line_why_it_cannot_write(tmp_path: Path, run) -> None:
    for target in (tmp_path / "no\nsuch" / "group.key", tmp_path, tmp_path / ("x" * 5000), "a\0b", ""):
        status, out, err = run(target)
        assert (status, out) == (2, "")
        assert err.count("\n") == 1
        assert err.startswith("ordercast keygen: ")


def test_keygen_leaves_no_torn_file(tmp_path: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, _, err = run(tmp_path / "group.key")
    assert status == 2
    assert "No space left" in err
    assert list(tmp_path.iterdir()) == []


def test_keygen_writes_on_when_a_write_is_cut_short(tmp_path: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    assert run(tmp_path / "group.key")[0] == 0
    load_key(tmp_path / "group.key")
