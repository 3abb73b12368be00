"""Batches of a sink: each once in the order, whoever asks how often, and whatever breaks on the way."""

from __future__ import annotations

import threading
import uuid

import pytest

from ordercast.errors import GroupError, NotPrimary
from ordercast.log import LogReader
from ordercast.serve import Client, stages
from ordercast.serve import messages as m
from ordercast.serve.batches import MARK, Batches, batch_of, load_batches, mark, without
from ordercast.serve.stages import decode_rows, encode_rows
from serve.member import Member


@pytest.fixture
def member(tmp_path):
    member = Member(tmp_path / "data")
    yield member
    member.close()


@pytest.fixture
def client(member):
    client = Client([member.server.address])
    yield client
    client.close()


def columns(*cells: bytes) -> tuple[bytes, bytes]:
    ends = [sum(map(len, cells[:number])) for number in range(len(cells) + 1)]
    return b"".join(end.to_bytes(4, "little") for end in ends), b"".join(cells)


def stage(client: Client, *rows: bytes) -> str:
    name = uuid.uuid4().hex
    client.ask(m.Stage(name), type(None), (encode_rows(columns(*rows), None, None),))
    return name


def commit(client: Client, number: int, *rows: bytes, app="app", query="q", attempt=None) -> m.Committed:
    batch = m.Batch(app, query, number, len(rows), attempt or uuid.uuid4().hex)
    return client.ask(m.Commit(batch, (stage(client, *rows),)), m.Committed)


def messages(member: Member) -> list[bytes]:
    """What readers see."""
    reader = LogReader(member.log.folder)
    fold = Batches()
    fold.advance(reader)
    return [data for batch in without(reader.read(0), fold.dead) for data in batch]


def test_rows_keep_keys_and_headers():
    keys = (b"\1\0\1", *columns(b"k", b"", b""))
    headers = (b"\0\0\1", *columns(b"", b"", b"h"))
    assert decode_rows(encode_rows(columns(b"a", b"", b"ccc"), keys, headers)) == (
        [b"a", b"", b"ccc"], [b"k", None, b""], [None, None, b"h"],
    )  # fmt: skip
    assert decode_rows(encode_rows(columns(b"a"), None, None)) == ([b"a"], None, None)


def test_batches_are_published_once(member, client):
    assert commit(client, 0, b"a", b"b") == m.Committed(False, 2)
    assert commit(client, 1, b"c") == m.Committed(False, 1)
    assert commit(client, 1, b"c") == m.Committed(True, 1)
    assert commit(client, 0, b"a", b"b") == m.Committed(True, 2)
    assert messages(member) == [b"a", b"b", b"c"]
    assert member.published == 2


def test_a_batch_is_one_chunk_in_the_order_of_its_stages(member, client):
    first, second = stage(client, b"1", b"2"), stage(client, b"3")
    client.ask(m.Commit(m.Batch("app", "q", 5, 3, "x"), (second, first)), m.Committed)
    (chunk,) = LogReader(member.log.folder).read(0)
    assert [*chunk] == [b"3", b"1", b"2"]
    assert batch_of(chunk) == m.Batch("app", "q", 5, 3, "x")
    with pytest.raises(GroupError, match="is not here"):
        client.ask(m.Fetch(first), type(None))


def test_another_checkpoint_needs_another_application(member, client):
    commit(client, 3, b"a")
    with pytest.raises(GroupError, match=r"txnAppId 'app' was used by another query: a new checkpoint .* needs a new"):
        commit(client, 0, b"b", query="q2")
    commit(client, 0, b"b", query="q2", app="app2")
    assert messages(member) == [b"a", b"b"]


def test_the_memory_of_batches_survives_restarts_and_retention(member, client):
    commit(client, 0, b"a")
    member.log.add_many(60, 100)
    member.restart()
    assert commit(client, 0, b"a").duplicate
    member.log.drop_before(3000)
    member.restart()
    assert commit(client, 0, b"a").duplicate
    assert load_batches(member.log.folder / "batches.json").seen["app"].number == 0


def test_a_member_that_crashed_after_the_batch_was_ordered(member, client):
    """The answer is lost, and with it the saved memory; the log has both."""

    def crash() -> None:
        raise NotPrimary("gone")

    member.after = crash
    with pytest.raises(NotPrimary):
        commit(client, 0, b"a")
    member.after = lambda: None
    member.restart()
    assert commit(client, 0, b"a").duplicate
    assert messages(member) == [b"a"]


def test_a_member_that_cannot_publish(member, client):
    def refuse() -> None:
        raise NotPrimary("this member is not in the primary component")

    member.before = refuse
    with pytest.raises(NotPrimary, match="not in the primary component"):
        commit(client, 0, b"a")
    member.before = lambda: None
    assert not commit(client, 0, b"a").duplicate
    assert messages(member) == [b"a"]


def test_copies_that_were_ordered_all_the_same_are_dead(member, client):
    """A partition kept a batch back, the sink published it elsewhere, and then the partition healed."""
    late = [mark(m.Batch("app", "q", 0, 2, "late"))]

    def heal() -> None:
        member.log.add([b"a", b"b"], None, [[mark(m.Batch("app", "q", 0, 2, "first"))], None])

    member.before = heal
    assert commit(client, 0, b"a", b"b").duplicate
    member.before = lambda: None
    commit(client, 1, b"c")
    member.log.add([b"a", b"b"], None, [late, None])
    member.log.add([b"d"], None, [[mark(m.Batch("app", "other", 9, 1, "foreign"))]])
    assert messages(member) == [b"a", b"b", b"c"]
    info = client.ask(m.Info(), m.Log)
    assert info.dead == ((2, 4), (5, 7), (7, 8))
    commit(client, 2, b"e")
    assert messages(member) == [b"a", b"b", b"c", b"e"]


def test_two_sinks_at_once(member):
    """The same batch from two drivers, many times: one gets in each time."""

    def run(rows: bytes) -> None:
        client = Client([member.server.address])
        for number in range(20):
            commit(client, number, rows + b"%d" % number)
        client.close()

    threads = [threading.Thread(target=run, args=(b"",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert messages(member) == [b"%d" % number for number in range(20)]


def test_what_is_not_a_batch(member, client):
    member.log.add([b"x"], None, [[(MARK, b"an application's own")]])
    member.log.add([b"y"], [b"k"], [[("a", b"b")]])
    commit(client, 0, b"z")
    assert messages(member) == [b"x", b"y", b"z"]


def test_rows_that_are_missing_or_too_many(member, client, monkeypatch):
    with pytest.raises(GroupError, match="1 rows were staged for a batch of 2"):
        client.ask(m.Commit(m.Batch("app", "q", 0, 2, "x"), (stage(client, b"a"),)), m.Committed)
    with pytest.raises(GroupError, match="is not here: the member was restarted"):
        client.ask(m.Commit(m.Batch("app", "q", 0, 2, "x"), ("0" * 32,)), m.Committed)
    monkeypatch.setattr("ordercast.serve.server.BATCH_BYTES_MAX", 100)
    with pytest.raises(GroupError, match="is more than 134217728: publish less at a time"):
        commit(client, 0, b"a" * 60, b"b" * 60)
    monkeypatch.setattr(stages, "BATCH_BYTES_MAX", 100)
    with pytest.raises(GroupError, match="publish less at a time"):
        stage(client, b"a" * 200)
    assert messages(member) == []


def test_stages_of_jobs_that_died_go(member, client, monkeypatch):
    name = stage(client, b"a")
    monkeypatch.setattr(stages, "STAGE_AGE_MAX_S", -1)
    monkeypatch.setattr("ordercast.serve.server.EXPIRE_EVERY_S", 0)
    stage(client, b"b")
    with pytest.raises(GroupError, match="is not here"):
        client.ask(m.Fetch(name), type(None))
    client.ask(m.Unstage((name,)), type(None))
