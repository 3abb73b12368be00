"""The trace's lines, however they are put together: whole JSON, steps without a gap, the right numbers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.net import recorder as module
from ordercast.net.recorder import LINES, Recorder

RUNS = st.lists(
    st.tuples(st.sampled_from(["n1", 'a"b\\c%d', "ü"]), st.integers(1, 12_000), st.integers(0, 3 * LINES)), max_size=12
)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What time it is; the recorder tells it once, and again when it has gone on."""
    now = [1_000_000]
    monkeypatch.setattr(module, "_now_us", lambda: now[0])
    return now


def lines_of(runs: list[tuple[str, int, int]], name: str = "n1") -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as directory:
        recorder = Recorder(Path(directory), name)
        for sender, first, count in runs:
            recorder.sent(sender, "8:n1.%d", first, count, "agreed")
        recorder.flush()
        recorder.end("close")
        return [json.loads(line) for line in (Path(directory) / f"{name}.jsonl").read_text().splitlines()]


@given(RUNS)
def test_a_run_is_a_line_for_each_message(runs: list[tuple[str, int, int]]) -> None:
    sent = [
        {"event": "send", "msg": f"{sender}/8:n1.%d/{number}", "conf": "8:n1.%d", "service": "agreed"}
        for sender, first, count in runs
        for number in range(first, first + count)
    ]
    if not sent:
        return
    expected = [*sent, {"event": "x-time", "time_us": 1_000_000}, {"event": "close", "time_us": 1_000_000}]
    assert lines_of(runs) == [{"node": "n1", "step": step, **event} for step, event in enumerate(expected, 1)]


@pytest.mark.parametrize("first", [1, 990, 999, 1000, 9_995, 99_998, 999_990])
def test_numbers_that_get_another_digit(first: int) -> None:
    """Steps and numbers cross thousands at different lines, and each width of both meets each of the other."""
    runs = [("n1", 7, 900), ("n2", first, 2 * LINES + 3), ("n1", 907, 9_000), ("n2", first + 2 * LINES + 3, 150)]
    said = [(event["step"], event["msg"]) for event in lines_of(runs)[:-2]]
    expected = [f"{sender}/8:n1.%d/{number}" for sender, start, count in runs for number in range(start, start + count)]
    assert said == list(enumerate(expected, 1))


def test_runs_that_continue_each_other_and_others_between_them() -> None:
    runs = [("n1", 5_000 + 40 * at, 40) for at in range(20)] + [("n2", 1, 5), ("n1", 5_800, 40), ("n1", 6_000, 40)]
    assert [event.get("msg") for event in lines_of(runs)[:-2]] == [
        f"{sender}/8:n1.%d/{number}" for sender, start, count in runs for number in range(start, start + count)
    ]


def test_more_than_the_buffer_holds_is_written_in_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [("n1", 1 + 70 * at, 70) for at in range(9)] + [("n" + 60 * "x", 1, 3000)]
    plenty = lines_of(runs)
    monkeypatch.setattr(module, "_BUFFER_BYTES", 1000)
    assert lines_of(runs) == plenty
    with tempfile.TemporaryDirectory() as directory:
        recorder = Recorder(Path(directory), "n1")
        recorder.sent("n1", "8:n1", 2000, 500, "agreed")
        recorder.sent("n1", "8:n1", 9000, 1, "agreed")
        written = recorder.path.read_bytes()
        assert written.endswith(b"}\n")
        assert written.count(b"\n") < 501
        recorder.end("close")


def test_the_time_is_told_now_and_then_and_never_behind_the_end(tmp_path: Path, clock: list[int]) -> None:
    recorder = Recorder(tmp_path, "n1")
    for wait_us in (0, 99_999, 1, 50_000, 500_000):
        clock[0] += wait_us
        recorder.sent("n1", "8:n1", 1, 1, "agreed")
        recorder.flush()
    clock[0] += 500_000
    recorder.end("leave")
    events = [json.loads(line) for line in (tmp_path / "n1.jsonl").read_text().splitlines()]
    assert [(event["event"], event.get("time_us")) for event in events] == [
        ("send", None), ("x-time", 1_000_000), ("send", None), ("send", None), ("x-time", 1_100_000), ("send", None),
        ("send", None), ("x-time", 1_650_000), ("leave", 2_150_000),
    ]  # fmt: skip
    assert [event["step"] for event in events] == list(range(1, 10))


@pytest.mark.parametrize("first", [1, 995, 2_990])
@pytest.mark.parametrize("place", [0, 998, 5_999, 999_990])
def test_places_are_a_third_number(tmp_path: Path, first: int, place: int) -> None:
    """Each number crosses its thousands where it will, and rows are told in the order in which they came."""
    recorder = Recorder(tmp_path, "n1")
    recorder.sent("n1", "8:n1", 1, 900, "agreed")
    expected = [{"event": "send", "msg": f"n1/8:n1/{number}", "conf": "8:n1", "service": "agreed"}
                for number in range(1, 901)]  # fmt: skip
    for row, start, count, at in (
        ("n1/7", first, 700, place),
        ("n1/7", first + 700, 3 * LINES, place + 700),
        ("n2/0", 5, 2, place + 9_000),
        ("n1/7", first + 700 + 3 * LINES, 40, place),
    ):
        recorder.placed("queue", row, start, count, at)
        recorder.messages("colour", row, start, 1, ',"colour":"red"')
        expected += [{"event": "queue", "msg": f"{row}/{start + i}", "pos": at + i} for i in range(count)]
        expected.append({"event": "colour", "msg": f"{row}/{start}", "colour": "red"})
    recorder.said("x-restored", pos=4)
    expected.append({"event": "x-restored", "pos": 4})
    recorder.end("close")
    told = [json.loads(line) for line in recorder.path.read_text().splitlines()]
    assert told[:-1] == [{"node": "n1", "step": step, **event} for step, event in enumerate(expected, 1)]


def test_how_far_the_lives_before_have_told_the_order(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "n1")
    recorder.placed("order", "n1/7", 1, 30, 100)
    recorder.messages("acknowledged", "n1/7", 1, 30)
    recorder.end("close")
    again = Recorder(tmp_path, "n1")
    assert again.continued
    assert again.ordered_before() == 130
    again.said("x-wiped")
    again.end("close")
    last = Recorder(tmp_path, "n1")
    assert last.ordered_before() == 0
    last.end(None)


def test_the_last_order_is_found_however_much_stands_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path, "n1")
    recorder.placed("order", "n1/7", 1, 30, 100)
    recorder.messages("durable", "n1/7", 31, 900)
    recorder.end("close")
    for block in (1, 77, 500, 10_000):
        monkeypatch.setattr(module, "_LOOK_BACK_BYTES", block)
        again = Recorder(tmp_path, "n1")
        assert again.ordered_before() == 130
        again.end(None)
