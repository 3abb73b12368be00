"""Schedules and their text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.sim import Action, Schedule, ScheduleError, format_schedule, generate, parse_schedule
from ordercast.sim.units import micros, seconds

_name = st.integers(1, 5).map("n{}".format)
_names = st.lists(_name, min_size=1, max_size=3, unique=True).map(" ".join) | st.just("*")
_link = st.tuples(_name | st.just("*"), st.sampled_from(["->", "<->"]), _name | st.just("*")).map(" ".join)
_time = st.integers(0, 10**8).map(seconds)
_rate = st.integers(0, 10_000).map(lambda value: f"{value / 10_000:.4f}")
_count = st.integers(0, 1000).map(str)


def _statement(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda values: form.format(*values))


_statements = st.one_of(
    _statement("latency {} {} {}", _time, _time, _link),
    _statement("loss {}", _rate),
    _statement("corruption {} {}", _rate, _link),
    _statement("spikes {} by {}", _rate, _time),
    _statement("cut {}", _link),
    _statement("mend {}", _link),
    _statement("partition {} | n5", st.sampled_from(["n1", "n2 n3", "n1 | n2 n4"])),
    _statement("drop {} {} {}", _count, st.sampled_from(["token", "*", "3"]), _link),
    _statement("delay {} join {} by {}", _count, _link, _time),
    _statement("pause {}", _names),
    _statement("crash {}", _names),
    _statement("fuse {} after {}", _names, _count),
    _statement("reinstall {}", _names),
    _statement("disk tear {}", _names),
    _statement("disk number {} {}", _count, _names),
    _statement("mtu {}", _count),
    _statement("jump {}{} {}", st.sampled_from("+-"), _time, _names),
    _statement("send {} {} size=10..{} service=safe keyed", _count, _names, st.integers(10, 99).map(str)),
    _statement("expect view n1 n2 at {}", _names),
    _statement("settle {}", _time),
)


@st.composite
def _schedules(draw: st.DrawFn) -> Schedule:
    times = sorted(draw(st.lists(st.integers(0, 10**8), max_size=20)))
    actions = tuple(Action(at, draw(_statements)) for at in times)
    config = draw(st.dictionaries(st.sampled_from(["packet_bytes", "window_size"]), st.integers(-5, 5000)))
    return Schedule(draw(st.integers(5, 20)), draw(st.integers(0, 2**40)), "totem", draw(st.integers(0, 9)),
                    tuple(config.items()), actions)  # fmt: skip


@given(_schedules())
def test_a_schedule_survives_its_text(schedule: Schedule) -> None:
    assert parse_schedule(format_schedule(schedule)) == schedule


@given(st.integers(0, 2**32), st.none() | st.integers(3, 20))
def test_what_a_seed_becomes_survives_its_text(seed: int, nodes: int | None) -> None:
    schedule = generate(seed, nodes=nodes)
    assert parse_schedule(format_schedule(schedule)) == schedule
    assert schedule.nodes == nodes or nodes is None


@given(st.integers(-(10**15), 10**15))
def test_times_survive_their_text(value: int) -> None:
    assert micros(seconds(value)) == value


def test_the_current_time_moves_with_at_and_advance() -> None:
    schedule = parse_schedule("nodes 2 # two\nloss 0.5\nat 1.25 pause n1\nadvance 0.5\nresume n1\nadvance 2")
    assert schedule.actions == (
        Action(0, "loss 0.5"),
        Action(1_250_000, "pause n1"),
        Action(1_750_000, "resume n1"),
        Action(3_750_000, "wait"),
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("explode n1", "line 1: there is no statement 'explode'"),
        ("nodes 3\ncut n1 n2", "line 2: 'cut n1 n2' is not of the form 'cut LINK[ on NETWORK]'"),
        ("nodes 3\ncrash n4", "names n4, but there are 3 nodes"),
        ("at 2 pause n1\nat 1 resume n1", "line 2: at 1 goes back in time"),
        ("at x pause n1", "'x' is not a number of seconds"),
        ("nodes", "line 1: nodes takes one value"),
        ("nodes many", "line 1: nodes takes a number"),
        ("nodes 0", "between 1 and"),
        ("config size", "'size' is not NAME=INTEGER"),
        ("at", "at without a time"),
        ("loss 2", "is not of the form"),
    ],
)
def test_a_wrong_script_is_refused_with_the_line(script: str, said: str) -> None:
    with pytest.raises(ScheduleError, match=None) as caught:
        parse_schedule(script)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
