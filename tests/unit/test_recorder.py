"""The trace's lines, however they are put together: whole JSON, steps without a gap, the right numbers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.net import recorder as module
from ordercast.net.recorder import BLOCK, Recorder

RUNS = st.lists(
    st.tuples(st.sampled_from(["n1", 'a"b\\c%d', "ü"]), st.integers(1, 12_000), st.integers(0, 3 * BLOCK)), max_size=12
)


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
    expected = [*sent, {"event": "close"}]
    assert lines_of(runs) == [{"node": "n1", "step": step, **event} for step, event in enumerate(expected, 1)]


def test_more_blocks_than_are_kept_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [(f"n{number % 7}", 1000 + 37 * number, 150) for number in range(40)]
    plenty = lines_of(runs)
    monkeypatch.setattr(module, "BLOCKS_MAX", 3)
    assert lines_of(runs) == plenty
