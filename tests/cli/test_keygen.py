"""`ordercast keygen`: a new secret, for its owner alone."""

from __future__ import annotations

import json
import os
import stat

import pytest

from cli.processes import error_line, ordercast
from ordercast.wire.keys import load_key


def test_a_new_secret(tmp_path):
    path = tmp_path / "group.key"
    result = ordercast("keygen", path)
    assert (result.returncode, result.stderr) == (0, b"")
    assert len(result.stdout.splitlines()) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(path).id in result.stdout.decode()
    other = tmp_path / "other.key"
    report = json.loads(ordercast("keygen", other, "--json").stdout)
    assert report["file"] == str(other)
    assert report["id"] == load_key(other).id != load_key(path).id


def test_it_overwrites_nothing(tmp_path):
    path = tmp_path / "group.key"
    ordercast("keygen", path)
    before = path.read_bytes()
    assert str(path) in error_line(ordercast("keygen", path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", ["/proc/group.key", "/nowhere/group.key", "", "a\0b"[:1] + "/" + "x" * 300])
def test_where_it_cannot_write(path):
    error_line(ordercast("keygen", path))
    assert not path or not os.path.exists(path)
