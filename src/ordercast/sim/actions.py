"""The statements of scenario scripts: what can be done to a simulated group.

Each statement stands above the function that carries it out, so this page is the reference. NODES is one or more
names (n1, n2, …), or `*` for all; LINK is `A -> B` or `A <-> B`, where either side may be `*`; TIME is
seconds; RATE is a probability per packet; KIND is a kind of packet by name or number, or `*`; NETWORK is
the number of a redundant network, from 1 on, without which a statement is about all of them; a part in brackets may
be left out. A statement that does not apply, such as `crash` of a node that is down, does nothing: so any action of
a schedule can be taken out without making the others invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ordercast.engine.contract import GroupChange
from ordercast.sim.units import micros

if TYPE_CHECKING:
    from ordercast.sim.world import World

Match = re.Match[str]
Handler = Callable[["World", Match], None]

_PARTS = {
    "NODES": r"(?P<nodes>\*|n\d+(?: n\d+)*)",
    "LINK": r"(?P<source>\*|n\d+) (?P<arrow><?->) (?P<target>\*|n\d+)",
    "GROUPS": r"(?P<groups>n\d+(?: n\d+)*(?: \| n\d+(?: n\d+)*)*)",
    "TIME": r"(?P<time>\d+(?:\.\d{1,6})?)",
    "JITTER": r"(?P<jitter>\d+(?:\.\d{1,6})?)",
    "SIGNED": r"(?P<signed>[+-]?\d+(?:\.\d{1,6})?)",
    "RATE": r"(?P<rate>[01](?:\.\d+)?)",
    "COUNT": r"(?P<count>\d+)",
    "LIMIT": r"(?P<limit>\d+)",
    "PPM": r"(?P<ppm>-?\d+)",
    "KIND": r"(?P<kind>\*|[a-z]+|\d+)",
    "SIZE": r"(?P<size>\d+(?:\.\.\d+)?)",
    "SERVICE": r"(?P<service>agreed|safe)",
    "MESSAGE": r"(?P<message>n\d+(?:\.\d+)?:\d+)",
    "TEXT": r"(?P<text>.+)",
    "KEYED": r"(?P<keyed>keyed)",
    "MEMBER": r"(?P<member>n\d+)",
    "MEMBERS": r"(?P<members>n\d+(?: n\d+)*)",
    "RELATION": r"(?P<relation><=|>=|=)",
    "NETWORK": r"(?P<network>[1-8])",
}
_TABLE: dict[str, list[tuple[re.Pattern[str], Handler]]] = {}
_SYNTAX: dict[str, list[str]] = {}


def _statement(syntax: str) -> Callable[[Handler], Handler]:
    """Registers a function under the form of its statement."""
    pattern = re.escape(syntax).replace("\\ ", " ").replace("\\[", "(?:").replace("\\]", ")?").replace("\\-", "-")
    pattern = re.sub(r"\b[A-Z]+\b", lambda match: _PARTS[match[0]], pattern)

    def register(handler: Handler) -> Handler:
        verb = syntax.split()[0]
        _TABLE.setdefault(verb, []).append((re.compile(pattern), handler))
        _SYNTAX.setdefault(verb, []).append(syntax)
        return handler

    return register


def _find(what: str) -> tuple[Handler, Match]:
    verb = what.partition(" ")[0]
    for pattern, handler in _TABLE.get(verb, ()):
        match = pattern.fullmatch(what)
        if match is not None:
            return handler, match
    if verb not in _TABLE:
        raise ValueError(f"there is no statement {verb!r}; there are {', '.join(sorted(_TABLE))}")
    raise ValueError(f"{what!r} is not of the form {' or '.join(map(repr, _SYNTAX[verb]))}")


def check_action(what: str) -> None:
    """Raises ValueError unless `what` is a statement."""
    _find(what)


def perform(world: World, what: str) -> None:
    handler, match = _find(what)
    handler(world, match)


def _verb(match: Match) -> str:
    return match.string.partition(" ")[0]


def _part(match: Match, name: str) -> str | None:
    """A part of the statement, None if it was left out or has no place in this form."""
    return match[name] if name in match.re.groupindex else None


# The network. Rates hold until they are set again; `delay`, `drop` and `duplicate` act on the next COUNT packets.


@_statement("latency TIME JITTER[ LINK][ on NETWORK]")
def _latency(world: World, match: Match) -> None:
    for link in world.links(match):
        link.base_us, link.jitter_us = micros(match["time"]), micros(match["jitter"])


@_statement("loss RATE[ LINK][ on NETWORK]")
@_statement("corruption RATE[ LINK][ on NETWORK]")
@_statement("duplication RATE by TIME[ LINK][ on NETWORK]")
@_statement("reordering RATE by TIME[ LINK][ on NETWORK]")
@_statement("spikes RATE by TIME[ LINK][ on NETWORK]")
def _rate(world: World, match: Match) -> None:
    for link in world.links(match):
        link.set_rate(_verb(match), float(match["rate"]), micros(_part(match, "time") or "0"))


@_statement("cut LINK[ on NETWORK]")
@_statement("mend LINK[ on NETWORK]")
def _cut(world: World, match: Match) -> None:
    world.network.set_cut(world.links(match), _verb(match) == "cut")


@_statement("partition GROUPS[ on NETWORK]")
def _partition(world: World, match: Match) -> None:
    """Nodes that are named in no group are together in one more."""
    world.network.partition([group.split() for group in match["groups"].split("|")], world.networks(match))


@_statement("merge")
@_statement("merge on NETWORK")
def _merge(world: World, match: Match) -> None:
    world.network.partition([], world.networks(match))


@_statement("drop COUNT KIND LINK[ on NETWORK]")
@_statement("duplicate COUNT KIND LINK[ on NETWORK]")
@_statement("delay COUNT KIND LINK by TIME[ on NETWORK]")
def _hook(world: World, match: Match) -> None:
    time_us = micros(_part(match, "time") or "0")
    world.network.hook(_verb(match), int(match["count"]), world.kind(match["kind"]), world.links(match), time_us)


@_statement("mtu COUNT")
def _mtu(world: World, match: Match) -> None:
    """Packets of more bytes do not pass any network from here on. It is what the networks are, so `heal` leaves it."""
    world.network.mtu = int(match["count"])


@_statement("garbage COUNT NODES")
def _garbage(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        world.network.garbage(node, int(match["count"]))


# Nodes


@_statement("pause NODES")
def _pause(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        node.pause()


@_statement("resume NODES")
def _resume(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        node.resume()


@_statement("crash NODES")
def _crash(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        node.crash("crash")


@_statement("fuse NODES after COUNT")
def _fuse(world: World, match: Match) -> None:
    """Crash once COUNT further effects have been carried out, so in the middle of a batch of them."""
    for node in world.named(match["nodes"]):
        node.light_fuse(int(match["count"]))


@_statement("restart NODES")
@_statement("reinstall NODES")
def _restart(world: World, match: Match) -> None:
    """Start nodes that are down or have left; `reinstall` gives them an empty disk."""
    for node in world.named(match["nodes"]):
        node.restart(wiped=_verb(match) == "reinstall")


@_statement("leave NODES")
def _leave(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        node.leave()


@_statement("disk lose NODES")
@_statement("disk tear NODES")
@_statement("disk fail NODES")
def _disk(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        node.disk.armed.append(match.string.split()[1])


@_statement("disk latency TIME JITTER NODES")
def _disk_latency(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        node.disk.latency_us, node.disk.jitter_us = micros(match["time"]), micros(match["jitter"])
        world.count("slow disk")


@_statement("disk number COUNT NODES")
def _disk_number(world: World, match: Match) -> None:
    """Nodes that are down find this ring number on their disk when they restart, as if so many rings had been."""
    from ordercast.sim.engines import ring_record  # which imports the world that imports this

    for node in world.named(match["nodes"]):
        if not node.alive:
            node.disk.records.update(ring_record(int(match["count"])))


@_statement("propose add MEMBER COUNT at NODES")
@_statement("propose remove MEMBER at NODES")
def _propose(world: World, match: Match) -> None:
    """corel: a node proposes a change of the declared group; COUNT is the weight."""
    member, weight = match["member"], _part(match, "count")
    change = GroupChange(remove=(member,)) if weight is None else GroupChange({member: int(weight)})
    for node in world.named(match["nodes"]):
        node.propose(change)


@_statement("snapshot NODES")
def _snapshot(world: World, match: Match) -> None:
    """corel: the application offers its state, and the log lets go of what stood before it."""
    for node in world.named(match["nodes"]):
        node.snapshot()


@_statement("cost TIME NODES")
def _cost(world: World, match: Match) -> None:
    """The time that a node takes over a packet."""
    for node in world.named(match["nodes"]):
        node.cost_us = micros(match["time"])
        world.count("slow node")


@_statement("queue COUNT NODES")
def _queue(world: World, match: Match) -> None:
    """The packets that a node's receive buffer holds."""
    for node in world.named(match["nodes"]):
        node.queue_max = int(match["count"])
        world.count("small queue")


@_statement("drift PPM NODES")
def _drift(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        node.drift(int(match["ppm"]))


@_statement("jump SIGNED NODES")
def _jump(world: World, match: Match) -> None:
    for node in world.named(match["nodes"]):
        node.jump(micros(match["signed"]))


@_statement("send COUNT NODES[ size=SIZE][ service=SERVICE][ KEYED]")
def _send(world: World, match: Match) -> None:
    """COUNT messages in one submission; a size A..B is drawn for each; `keyed` gives some of them keys and headers."""
    low, _, high = (match["size"] or "32").partition("..")
    for node in world.named(match["nodes"]):
        node.send(int(match["count"]), int(low), int(high or low), match["service"] == "safe", bool(match["keyed"]))


# The whole


@_statement("heal")
def _heal(world: World, match: Match) -> None:
    """End every fault: network, clocks' drift, slow and failing disks, pauses. Crashed nodes stay down."""
    world.heal()


@_statement("await TIME")
def _await(world: World, match: Match) -> None:
    """Wait until the group is whole and quiet, for TIME at most."""
    world.wait_whole(world.now + micros(match["time"]))


@_statement("settle TIME")
def _settle(world: World, match: Match) -> None:
    """Wait until the group is whole and quiet, for TIME at most, send some messages, wait again, close the traces."""
    world.settle(micros(match["time"]))


@_statement("wait")
def _wait(world: World, match: Match) -> None:
    """Do nothing: time has passed."""


# What scripts expect at this point. A wrong expectation is a violation named "expect".


@_statement("expect view MEMBERS at NODES")
def _expect_view(world: World, match: Match) -> None:
    """The last regular configuration at the nodes behind `at` has exactly the members before it."""
    members = sorted(node.name for node in world.named(match["members"]))
    for node in world.named(match["nodes"]):
        view = node.log.view
        world.expect(match, view is not None and sorted(view.members) == members, f"{node.name} has {view}")


@_statement("expect delivered MESSAGE at NODES")
@_statement("expect undelivered MESSAGE at NODES")
def _expect_delivered(world: World, match: Match) -> None:
    """n1:3 is the third message of n1's first life, n1.2:1 the first of its second."""
    name, _, number = match["message"].partition(":")
    message = f"{name}:{number}" if "." in name else f"{name}.1:{number}"
    for node in world.named(match["nodes"]):
        delivered = node.log.has_delivered(message)
        expected = match.string.split()[1] == "delivered"
        world.expect(match, delivered == expected, f"{node.name} has {'' if delivered else 'not '}delivered {message}")


@_statement("expect views RELATION LIMIT at NODES")
def _expect_views(world: World, match: Match) -> None:
    """The number of regular configurations that each of the nodes has delivered so far."""
    limit = int(match["limit"])
    for node in world.named(match["nodes"]):
        views = node.log.views
        holds = {"<=": views <= limit, ">=": views >= limit, "=": views == limit}[match["relation"]]
        world.expect(match, holds, f"{node.name} has had {views}")


@_statement("mark views")
def _mark_views(world: World, match: Match) -> None:
    """From here on `expect no-view` counts."""
    world.mark_views()


@_statement("expect no-view at NODES")
def _expect_no_view(world: World, match: Match) -> None:
    """No regular configuration was delivered there since the last `mark views`."""
    for node in world.named(match["nodes"]):
        views = world.views_since_mark(node)
        world.expect(match, views == 0, f"{node.name} has had {views}, the last is {node.log.view}")


@_statement("expect faulty NETWORK at NODES")
@_statement("expect sound NETWORK at NODES")
def _expect_network(world: World, match: Match) -> None:
    """What the nodes make of a redundant network now."""
    for node in world.named(match["nodes"]):
        faulty = int(match["network"]) in node.log.faulty
        wanted = match.string.split()[1] == "faulty"
        world.expect(match, faulty == wanted, f"at {node.name} the faulty networks are {sorted(node.log.faulty)}")


@_statement("expect alarms RELATION LIMIT on NETWORK at NODES")
def _expect_alarms(world: World, match: Match) -> None:
    """How often each of the nodes has reported the network as faulty so far."""
    limit = int(match["limit"])
    for node in world.named(match["nodes"]):
        alarms = node.log.alarms.get(int(match["network"]), 0)
        holds = {"<=": alarms <= limit, ">=": alarms >= limit, "=": alarms == limit}[match["relation"]]
        world.expect(match, holds, f"{node.name} has reported it {alarms} times")


@_statement("expect report TEXT at NODES")
@_statement("expect no-report TEXT at NODES")
def _expect_report(world: World, match: Match) -> None:
    """An engine's report `what: reason` so far contains the text."""
    for node in world.named(match["nodes"]):
        found = any(match["text"] in line for line in node.log.reports)
        expected = match.string.split()[1] == "report"
        world.expect(match, found == expected, f"{node.name} reported " + "; ".join(node.log.reports[-8:]))


@_statement("expect running NODES")
@_statement("expect down NODES")
@_statement("expect gone NODES")
def _expect_state(world: World, match: Match) -> None:
    """`down`: crashed. `gone`: left on purpose."""
    for node in world.named(match["nodes"]):
        world.expect(match, node.state.value == match.string.split()[1], f"{node.name} is {node.state.value}")


@_statement("expect packets RELATION LIMIT")
def _expect_packets(world: World, match: Match) -> None:
    """Packets delivered to engines since the last statement of this kind: a bound on storms."""
    packets, limit = world.packets_since_asked(), int(match["limit"])
    holds = {"<=": packets <= limit, ">=": packets >= limit, "=": packets == limit}[match["relation"]]
    world.expect(match, holds, f"there were {packets}")


@_statement("expect no-violation")
@_statement("expect violation TEXT")
def _expect_verdict(world: World, match: Match) -> None:
    """What the checker will say of the whole run; without either the script expects no violation."""
    world.expected_violation = _part(match, "text")
