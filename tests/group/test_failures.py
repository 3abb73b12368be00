"""What goes wrong below: the engine, the disk, strangers on the network, a suspended or busy process."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.group.party import Party, messages, run, view_of, wait_until

import ordercast
from ordercast import AuthError, DeliveryUncertain, GroupError, View
from ordercast.check import check_trace
from ordercast.net.addresses import group_endpoint
from ordercast.net.driver import Driver
from ordercast.net.recorder import Recorder
from ordercast.net.storage import Storage

BLOCKED_S = 1.2
"""Three token-loss timeouts."""


def _driver(group: ordercast.Group) -> Driver:
    return group._joined().member.driver


def _events(party: Party, name: str) -> list[dict[str, Any]]:
    text = (party.directory / name / "trace" / f"{name}.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_an_error_in_the_engine_ends_the_group_with_its_cause(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            b = await party.join("b", min_members=2)
            engine: Any = _driver(b).engine
            deliver = type(engine).take_effects

            def fail(self: Any) -> Any:
                effects = deliver(self)
                if self is engine and any(type(effect).__name__ == "Deliver" for effect in effects):
                    raise AssertionError("an invariant is broken")
                return effects

            monkeypatch.setattr(type(engine), "take_effects", fail)
            ticket = b.send_nowait(b"x")
            with pytest.raises(DeliveryUncertain):
                await ticket
            with pytest.raises(GroupError, match="AssertionError: an invariant is broken") as failed:
                await view_of(b, [])
            assert isinstance(failed.value.__cause__, AssertionError)
            assert failed.value.__cause__.__traceback__ is not None
            await b.leave()
            await view_of(a, ["a", "b"])
            await view_of(a, ["a"])

    run(main())
    # As after a crash: the delivery that failed is in nobody's hands and in no trace.
    assert _events(party, "b")[-1]["event"] not in ("leave", "close", "deliver")


def test_a_stop_without_a_leave_closes_the_trace(party: Party) -> None:
    async def main() -> None:
        a = await party.join("a", discovery_s=0.1)
        await (await a.send(b"x"))
        _driver(a).stop()
        assert [type(event) async for event in a].index(View) == 0
        await a.leave()

    run(main())
    assert _events(party, "a")[-1]["event"] == "close"


def test_a_leave_is_the_last_event(party: Party) -> None:
    with party.join_sync("a", discovery_s=0.1) as a:
        a.send(b"x").wait(20)
    assert [event["event"] for event in _events(party, "a")][-3:] == ["send", "deliver", "leave"]


def test_a_write_that_fails_ends_the_group(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with party.join("a", discovery_s=0.2) as a:

            def fail(*_: object) -> None:
                raise OSError(errno.EIO, "the disk is gone")

            monkeypatch.setattr(Storage, "write", fail)
            with pytest.raises(GroupError, match=r"stable storage has failed: .*the disk is gone"):
                await party.join("b", discovery_s=0.2)
            # The next view of `a` needs a number on disk, too; nothing asks for one.
            assert a.view.members == ("a",)

    run(main())


def test_a_trace_that_cannot_be_written_ends_the_group(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        a = await party.join("a", discovery_s=0.1)

        def fail(self: Recorder) -> None:
            raise GroupError(f"trace {self.path}: no space")

        monkeypatch.setattr(Recorder, "_write", fail)
        ticket = a.send_nowait(b"x")
        with pytest.raises(DeliveryUncertain):
            await ticket
        with pytest.raises(GroupError, match="no space"):
            await a.leave()

    run(main())


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-5]),
        lambda path: path.write_bytes(os.urandom(100)),
        lambda path: path.unlink(),
    ],
    ids=["empty", "torn", "garbage", "missing"],
)
def test_a_damaged_record_costs_at_most_that_record(party: Party, damage: Callable[[Path], None]) -> None:
    numbers = []
    for _ in range(3):
        with party.join_sync("a", discovery_s=0.1) as a:
            numbers.append(int(a.view.id.partition(":")[0]))
            a.send(b"x").wait(20)
        records = sorted(party.directory.glob("a/*.record"), key=lambda path: path.stat().st_mtime_ns)
        damage(records[0])
        (party.directory / "a" / "ring.0.tmp").write_bytes(b"left behind")
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("line", ["x", "y" * 10_000])
def test_a_torn_last_line_is_cut_off_and_the_trace_goes_on(tmp_path: Path, line: str) -> None:
    path = tmp_path / "n.jsonl"
    first = '{"node":"n","step":7,"event":"x-note","text":"' + "z" * 9_000 + '"}\n'
    path.write_text(first + '{"node":"n","step":8,' + line)
    recorder = Recorder(tmp_path, "n")
    recorder.end("close")
    lines = path.read_text().splitlines(keepends=True)
    assert lines[0] == first
    assert [(e["step"], e["event"]) for e in map(json.loads, lines[1:])] == [(8, "recover"), (9, "close")]


def test_a_trace_without_an_event_is_no_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "n")
    recorder.end("close")
    assert not list(tmp_path.iterdir())
    (tmp_path / "n.jsonl").write_text("no line of a trace\n")
    with pytest.raises(GroupError, match="not one of a trace"):
        Recorder(tmp_path, "n")


def test_a_killed_process_comes_back_with_its_data_dir(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            for _ in range(2):
                other = party.start("talk", "b", 2, 1000)
                await view_of(a, ["a", "b"])
                await messages(a, 100)
                os.kill(other.pid, signal.SIGKILL)
                other.popen.wait()
                await view_of(a, ["a"])

    run(main())
    assert [event["event"] for event in _events(party, "b")].count("recover") == 1


def test_a_suspended_process_comes_back(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a:
            other = party.start("listen", "b", 2)
            await view_of(a, ["a", "b"])
            os.kill(other.pid, signal.SIGSTOP)
            await view_of(a, ["a"])
            await (await a.send(b"without b"))
            os.kill(other.pid, signal.SIGCONT)
            await view_of(a, ["a", "b"])
            await (await a.send(b"leave", service="safe"))
            while "left" not in (await asyncio.to_thread(other.hear)):
                pass

    run(main())


@pytest.mark.parametrize("key", [None, bytes(32)], ids=["plain", "sealed"])
def test_another_version_is_one_clear_error(party: Party, key: bytes | None) -> None:
    magic = b"OC" if key is None else b"OS"
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

    async def main() -> None:
        joining = asyncio.create_task(party.join("a", key=key).__aenter__())
        while not joining.done():
            stranger.sendto(magic + b"\x63\x03" + bytes(60), group_endpoint(party.group, "127.0.0.1"))
            await asyncio.sleep(0.02)
        with pytest.raises(GroupError, match=r"another version \(99\)"):
            await joining

    with stranger:
        run(main())


def test_another_version_does_not_disturb_a_group(party: Party, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with party.join("a") as a, party.join("b", min_members=2) as b:
            view = b.view
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
                for _ in range(200):
                    stranger.sendto(b"OC\x63\x03" + bytes(60), group_endpoint(party.group, "127.0.0.1"))
            await (await a.send(b"x", service="safe"))
            assert a.view.id == view.id

    run(main())
    said = [record.getMessage() for record in caplog.records if "version" in record.getMessage()]
    assert len(said) == 2
    assert "99" in said[0]


@pytest.mark.parametrize(
    ("theirs", "mine", "text"),
    [
        (bytes(32), bytes([1]) * 32, "use another key"),
        (None, bytes(32), "use no key, and this one has one"),
        (bytes(32), None, "use a key, and this one has none"),
    ],
    ids=["another", "none", "none here"],
)
def test_a_wrong_key_is_one_clear_error(party: Party, theirs: bytes | None, mine: bytes | None, text: str) -> None:
    async def main() -> None:
        async with party.join("a", key=theirs) as a, party.join("b", key=theirs, min_members=2) as b:
            view = b.view
            with pytest.raises(AuthError, match=text):
                await party.join("c", key=mine)
            await (await a.send(b"x", service="safe"))
            assert a.view.id == view.id

    run(main())


@pytest.mark.usefixtures("patient")
def test_keys_rotate_under_load_without_a_view(party: Party) -> None:
    async def main() -> None:
        old, new = bytes(32), bytes([7]) * 32
        async with party.join("a", key=old) as a, party.join("b", key=old, min_members=2) as b:
            await view_of(a, ["a", "b"])
            view, stop = a.view, False

            async def send() -> int:
                sent = 0
                while not stop:
                    await (await a.send(b"%d" % sent))
                    sent += 1
                return sent

            sending = asyncio.create_task(send())
            await asyncio.gather(b.rotate_key(new), a.rotate_key(new))
            stop = True
            sent = await sending
            assert [m.data for m in await messages(b, sent)] == [b"%d" % number for number in range(sent)]
            assert a.view.id == b.view.id == view.id
            async with party.join("c", key=new, min_members=3):
                pass
            with pytest.raises(AuthError, match="another key"):
                await party.join("d", key=old)

    run(main())


@pytest.mark.parametrize("how", ["sleeps", "computes"])
def test_a_busy_application_changes_no_view(party: Party, how: str) -> None:
    async def main() -> None:
        async with party.join("a", min_members=1) as a:
            others = [party.start("listen", name, 3) for name in "bc"]
            await view_of(a, ["a", "b", "c"])
            view = a.view
            before = a.status()["counters"]["views"]  # type: ignore[index]
            until = time.monotonic() + BLOCKED_S
            if how == "sleeps":
                time.sleep(BLOCKED_S)
            else:
                number = 0
                while time.monotonic() < until:
                    number = number * 31 % 1_000_003 + 1
            ticket = await a.send(b"leave", service="safe")
            assert (await ticket).view_id == view.id
            assert a.status()["counters"]["views"] == before  # type: ignore[index]
            for other in others:
                while "left" not in (await asyncio.to_thread(other.hear)):
                    pass

    run(main())


def test_an_idle_group_sleeps(party: Party) -> None:
    async def main() -> None:
        async with party.join("a") as a, party.join("b") as b, party.join("c", min_members=3) as c:
            await view_of(a, ["a", "b", "c"])
            before = [_driver(group).turns for group in (a, b, c)]
            await asyncio.sleep(1.0)
            for group, turns in zip((a, b, c), before, strict=True):
                assert _driver(group).turns - turns < 150

    run(main())


def test_a_trace_that_goes_on_after_a_leave_is_legal(party: Party) -> None:
    for _ in range(3):
        with party.join_sync("a", discovery_s=0.1) as a:
            a.send(b"x").wait(20)
    assert [event["event"] for event in _events(party, "a")].count("recover") == 2
    assert check_trace(party.directory / "a" / "trace").ok
    wait_until(lambda: not party.threads(), "the end of the threads")
