"""Engines brought to a state of the membership protocol by hand, as the rest of their ring would bring them there."""

from __future__ import annotations

from ring import COMMIT, Bench, Process, still

from ordercast.engine.totem import Phase, TotemConfig
from ordercast.wire.ids import NodeId
from ordercast.wire.totem import CommitEntry, CommitToken, Join, decode_commit


def join(sender: str, members: str, failed: str = "", ring_seq: int = 0) -> bytes:
    return Join(NodeId(sender), frozenset(map(NodeId, members)), frozenset(map(NodeId, failed)), ring_seq).encode()


def gathering(names: str = "abc", me: str = "b", settings: TotemConfig | None = None) -> Bench:
    """A ring that stands still, of which one member has lost the token: its sets are the whole ring and nobody."""
    bench = still(names, settings)
    bench.until(lambda: bench[me].phase is Phase.GATHER)
    bench[me].effects.clear()
    return bench


def sets(process: Process) -> tuple[str, str]:
    return "".join(sorted(process.state.my_proc_set)), "".join(sorted(process.state.my_fail_set))


def commit_token(bench: Bench, me: str) -> CommitToken:
    """The Commit token as a process sent it last."""
    return decode_commit(bench[me].sent(COMMIT)[-1])


def agree(bench: Bench, me: str, others: str, members: str, failed: str = "", ring_seq: int = 8) -> None:
    """The others send Joins with exactly the sets of `me`."""
    for name in others:
        bench.give(me, join(name, members, failed, ring_seq))


def committed(names: str = "abc", me: str = "a") -> Bench:
    """`me`, the representative, has made a Commit token for the whole ring."""
    bench = gathering(names, me)
    agree(bench, me, names.replace(me, ""), names)
    assert bench[me].phase is Phase.COMMIT
    return bench


def recovering(names: str = "abc", me: str = "b") -> Bench:
    """`me`, not the representative, has had the Commit token twice: it is in Recovery."""
    bench = gathering(names, me)
    others = names.replace(me, "")
    agree(bench, me, others, names)
    token = first_rotation(bench, names, me)
    bench.give(me, token.encode())
    token = commit_token(bench, me)
    for entry in token.memb_list:
        entry.filled = True
        entry.old_ring, entry.window = bench[me].ring.id, 8192
    token.rotation = 2
    bench.give(me, token.encode())
    assert bench[me].phase is Phase.RECOVERY
    return bench


def first_rotation(bench: Bench, names: str, me: str, number: int = 100) -> CommitToken:
    """A Commit token as the representative of `names` would make it, on its way to `me`."""
    entries = [CommitEntry(NodeId(name)) for name in names]
    for entry in entries[: names.index(me)]:
        entry.filled, entry.old_ring, entry.window = True, bench[me].ring.id, 8192
    return CommitToken(number, 0, 1, max(names.index(me) - 1, 0), entries)
