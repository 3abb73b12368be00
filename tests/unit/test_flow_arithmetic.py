"""`transmits_allowed`, the arithmetic of §8.2, on all figures."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ordercast.engine.totem.flow import transmits_allowed

counts = st.integers(0, 5000)
figures = st.fixed_dictionaries(
    {
        "max_messages": st.integers(1, 500),
        "window_size": st.integers(1, 2000),
        "fcc": counts,
        "my_trc": counts,
        "backlog": counts,
        "my_pbl": counts,
        "my_tbl": st.integers(-1, 5000),
    }
)


@given(figures)
def test_none_of_the_three_constraints_is_exceeded(f: dict[str, int]) -> None:
    allowed = transmits_allowed(**f)
    assert 0 <= allowed <= f["max_messages"]
    assert allowed <= max(f["window_size"] - max(f["fcc"] - f["my_trc"], 0), 0)
    others = max(f["backlog"] - f["my_pbl"], 0)
    assert allowed <= max(f["window_size"] * max(f["my_tbl"], 0) // max(others + f["my_tbl"], 1), 1)


@given(figures)
def test_nothing_is_allowed_to_those_with_nothing_to_send(f: dict[str, int]) -> None:
    assert transmits_allowed(**{**f, "my_tbl": 0}) == 0


@example(
    dict.fromkeys(("fcc", "my_trc", "my_pbl"), 0) | {"window_size": 9, "max_messages": 9, "backlog": 99, "my_tbl": 1}
)
@given(figures)
def test_whoever_has_something_may_send_one_while_the_window_is_open(f: dict[str, int]) -> None:
    """Nobody is starved, however small its share is."""
    f["my_tbl"] = max(f["my_tbl"], 1)
    if f["fcc"] - f["my_trc"] < f["window_size"]:
        assert transmits_allowed(**f) >= 1


@given(figures, st.sampled_from(("fcc", "backlog")), st.integers(1, 500))
def test_more_traffic_of_others_never_allows_more(f: dict[str, int], what: str, more: int) -> None:
    assert transmits_allowed(**{**f, what: f[what] + more}) <= transmits_allowed(**f)


@given(figures, st.sampled_from(("max_messages", "window_size", "my_tbl")), st.integers(1, 500))
def test_larger_limits_and_more_to_send_never_allow_less(f: dict[str, int], what: str, more: int) -> None:
    assert transmits_allowed(**{**f, what: f[what] + more}) >= transmits_allowed(**f)


@given(st.integers(1, 12), st.integers(1, 300), st.integers(1, 300), st.lists(counts, min_size=12, max_size=12))
def test_a_ring_of_any_size_keeps_to_its_window_in_every_rotation(
    size: int, window: int, max_messages: int, loads: list[int]
) -> None:
    """The token goes round with fcc and backlog as `handle_token` keeps them."""
    fcc = backlog = 0
    trc, pbl, left = [0] * size, [0] * size, loads[:size]
    for _ in range(6):
        for me in range(size):
            allowed = transmits_allowed(
                max_messages=max_messages,
                window_size=window,
                fcc=fcc,
                my_trc=trc[me],
                backlog=backlog,
                my_pbl=pbl[me],
                my_tbl=left[me],
            )
            left[me] -= min(allowed, left[me])
            fcc += allowed - trc[me]
            backlog += left[me] - pbl[me]
            trc[me], pbl[me] = allowed, left[me]
            assert fcc == sum(trc) <= window
            assert backlog == sum(pbl)
