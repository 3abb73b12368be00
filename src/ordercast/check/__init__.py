"""The trace checker: does a trace keep the properties E1 to E14 of extended virtual synchrony, and C1 to C9 of corel?

Two doors. `check_trace(directory)` reads a trace from files, `check_events({node: events})` takes one from memory, as
the simulator does for every seed:

    from ordercast.check import Conf, Deliver, End, Send, check_events

    verdict = check_events({
        "n1": [
            Conf("n1", 1, "2:n1", "regular", ("n1",), 2),
            Send("n1", 2, "m1", "2:n1", "agreed"),
            Deliver("n1", 3, "m1", "n1", "2:n1", "agreed"),
            End("n1", 4),
        ],
    })
    assert verdict.ok, verdict.violations

Events, one struct for each row of the contract's table of traces (`events.py` has the corel and mtp ones too):

    Conf(node, step, conf, kind, members, number)      kind "regular" or "transitional", number may be left out
    Send(node, step, msg, conf, service)               service "agreed" or "safe"
    Deliver(node, step, msg, sender, conf, service)
    Recover(node, step)  Leave(node, step)  End(node, step)  Close(node, step)

They are msgspec structs: `msgspec.json.encode(event) + b"\\n"` is the line that belongs into `NODE.jsonl`. Instead of
structs `check_events` takes dicts with the same fields, the way a line reads. Typed events are taken as they are,
dicts are checked field by field. The mapping names every node of the run, those without events included.

Both return a `Verdict`: the number of events and, for each property that is violated, one `Violation` with the
shortest evidence at hand, as sentences. A trace that cannot be read raises `TraceError`, one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ordercast.check import (
    c01_causal,
    c02_no_changes_in_green,
    c03_agreed_green,
    c04_yellow,
    c05_durable,
    c07_minorities,
    c08_primaries,
    c09_one_place,
    e01_integrity,
    e02_no_duplication,
    e03_origin,
    e04_shape_of_views,
    e05_agreement_on_views,
    e06_self_delivery,
    e07_failure_atomicity,
    e08_causal_delivery,
    e09_total_order,
    e10_no_holes,
    e11_safe_delivery,
    e12_safe_installation,
    e13_membership_precision,
    e14_termination,
)
from ordercast.check.build import Builder
from ordercast.check.corel_model import CorelModel
from ordercast.check.errors import TraceError
from ordercast.check.events import Close, Conf, Deliver, End, Event, Extra, Leave, Recover, Send
from ordercast.check.model import Model
from ordercast.check.trace import Progress, convert_events, node_files, read_events

__all__ = [
    "COREL_PROPERTIES",
    "PROPERTIES",
    "Close",
    "Conf",
    "Deliver",
    "End",
    "Event",
    "Extra",
    "Leave",
    "Recover",
    "Send",
    "TraceError",
    "Verdict",
    "Violation",
    "check_events",
    "check_trace",
]

PROPERTIES: dict[str, Callable[[Model], list[str] | None]] = {
    "E1": e01_integrity.check,
    "E2": e02_no_duplication.check,
    "E3": e03_origin.check,
    "E4": e04_shape_of_views.check,
    "E5": e05_agreement_on_views.check,
    "E6": e06_self_delivery.check,
    "E7": e07_failure_atomicity.check,
    "E8": e08_causal_delivery.check,
    "E9": e09_total_order.check,
    "E10": e10_no_holes.check,
    "E11": e11_safe_delivery.check,
    "E12": e12_safe_installation.check,
    "E13": e13_membership_precision.check,
    "E14": e14_termination.check,
}
"""Each property's check: the evidence of a violation, or None where the property holds."""

COREL_PROPERTIES: dict[str, Callable[[CorelModel], list[str] | None]] = {
    "C1": c01_causal.check,
    "C2": c02_no_changes_in_green.check,
    "C3": c03_agreed_green.check,
    "C4": c04_yellow.check,
    "C5": c05_durable.check,
    "C7": c07_minorities.check,
    "C8": c08_primaries.check,
    "C9": c09_one_place.check,
}
"""Those of corel, asked where a trace has events of it. C6 counts rounds, which no trace tells: the simulator does."""


@dataclass(frozen=True, slots=True)
class Violation:
    property: str
    evidence: list[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    events: int
    violations: list[Violation]

    @property
    def ok(self) -> bool:
        return not self.violations


def check_trace(directory: str | PathLike[str], progress: Progress | None = None) -> Verdict:
    """Check a directory of `NODE.jsonl` or `NODE.parquet` files. `progress` is told of bytes as they are read."""
    files = node_files(Path(directory))
    builder = Builder(files)
    for node, path in files.items():
        unit = "row" if path.suffix == ".parquet" else "line"
        builder.feed(node, read_events(path, progress), str(path), unit)
    return _judge(builder, f"{directory}: ")


def check_events(events: Mapping[str, Iterable[Event | Extra | Mapping[str, object]]]) -> Verdict:
    """Check a trace in memory: for each node of the run its events, in order."""
    builder = Builder(events)
    for node, of_node in events.items():
        builder.feed(node, convert_events(node, of_node), f"node {node}", "event")
    return _judge(builder, "")


def _judge(builder: Builder, where: str) -> Verdict:
    try:
        model = builder.finish()
    except TraceError as error:
        raise TraceError(f"{where}{error}") from None
    found = [(name, check(model)) for name, check in PROPERTIES.items()]
    if builder.corel.spoken:
        found += [(name, check_corel(builder.corel)) for name, check_corel in COREL_PROPERTIES.items()]
    return Verdict(model.events, [Violation(name, evidence) for name, evidence in found if evidence is not None])
