"""Several systems measured in one go, in turns: machines are noisy, so only what ran side by side is compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ordercast.bench.hosts import Place
from ordercast.bench.peers import PEERS, Peer, run_peer
from ordercast.bench.processes import RunFailed
from ordercast.bench.report import summarize
from ordercast.bench.run import Tick, Work, run_group

OURS = "ordercast"

Contestant = Callable[[], dict[str, Any]]
"""One run."""


def alternate(contestants: Mapping[str, Contestant], repeat: int) -> dict[str, dict[str, Any]]:
    """Each contestant's medians over so many runs, taken in turns; `failed` holds what went wrong with a run."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    failed: dict[str, list[str]] = {name: [] for name in contestants}
    for _ in range(repeat):
        for name, contestant in contestants.items():
            try:
                runs[name].append(contestant())
            except RunFailed as error:
                failed[name].append(str(error))
    return {
        name: (summarize(runs[name]) if runs[name] else {"runs": []}) | {"failed": failed[name]} for name in contestants
    }


def peers_for(encrypt: bool, names: Sequence[str] = ()) -> list[Peer]:
    """Those that do the same work: encrypted or not as ours."""
    return [peer for peer in PEERS.values() if peer.encrypts == encrypt and (not names or peer.name in names)]


@contextmanager
def prepared(peers: Sequence[Peer], work: Work, at: Sequence[Place], tick: Tick) -> Iterator[dict[str, Contestant]]:
    """Ours and these peers as contestants."""
    with tempfile.TemporaryDirectory(prefix="ordercast-peers-") as built:
        for peer in peers:
            peer.prepare(Path(built))
        contestants: dict[str, Contestant] = {OURS: partial(run_group, work, at, tick)}
        yield contestants | {peer.name: partial(run_peer, peer, work, at, Path(built), tick) for peer in peers}


def ratios(results: Mapping[str, Mapping[str, Any]], rate: float) -> dict[str, dict[str, float | None]]:
    """Ours divided by each of the others: messages when saturated, latencies at a fixed rate."""
    ours = results[OURS]
    found: dict[str, dict[str, float | None]] = {}
    for name, figures in results.items():
        if name == OURS or not figures["runs"] or not ours["runs"]:
            continue
        if rate:
            found[name] = {
                share: ratio(ours["latency_ms"][share], figures["latency_ms"][share]) for share in ("p50", "p99")
            }
        else:
            found[name] = {"delivered_per_s": ratio(ours["delivered_per_s"], figures["delivered_per_s"])}
    return found


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """None where either was not measured."""
    return round(ours / theirs, 3) if ours is not None and theirs else None
