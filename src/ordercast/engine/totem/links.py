"""Who hears whom: what keeps one-way and partial links from re-forming rings for ever (deviation D20).

The paper forms a new ring whenever a foreign message is heard. If A hears B and B does not hear A, or if A and B hear
each other and B has a neighbour that A cannot hear, no ring with all of them can form, and every foreign message
starts another vain attempt. So:

- Every process broadcasts a beacon now and then, which names its ring's members and those whom it hears directly.
  The beacon is also the foreign message by which idle rings find each other.
- A process that was heard while a ring formed without it becomes a *suspect* of the members of that ring. In the
  Operational state Joins and foreign messages of a suspect are ignored...
- ...until beacons newer than the suspicion show that every member of my ring and every member of its ring hear each
  other both ways. A process does not itself start another attempt before a pause is over, which doubles with every
  attempt that failed all the same; it does join one that the other side starts.

A process that was silent while the ring formed (crashed, partitioned) is not suspected, so that crashes and healed
partitions cost no delay.
"""

from __future__ import annotations

from ordercast.engine.contract import Broadcast
from ordercast.engine.totem.state import State, Suspect
from ordercast.wire.ids import NodeId, NodeKey, node_key
from ordercast.wire.layout import MEMBERS_MAX
from ordercast.wire.totem import Beacon

DIRECTORY_MAX = 4096
"""Names known by their keys; beyond it the one that has been silent longest is forgotten."""
RING_SIZE_PER_INTERVAL = 32
"""Beacons come less often in larger rings, so that their rate per member stays bounded."""
HEARD_INTERVALS = 4
"""How many beacon intervals a process counts as heard."""


def beacon_interval_us(s: State) -> int:
    return s.config.beacon_interval_us * max(1, -(-s.ring.size // RING_SIZE_PER_INTERVAL))


def learn(s: State, name: NodeId) -> bool:
    """Notes a packet directly from `name`; False if the name cannot be told from another (its key is taken)."""
    key = node_key(name)
    known = s.directory.get(key)
    if known is None:
        if len(s.directory) >= DIRECTORY_MAX:
            _forget_the_longest_silent(s)
        s.directory[key] = name
    elif known != name:
        return False
    s.heard_us[name] = s.now
    return True


def _forget_the_longest_silent(s: State) -> None:
    kept = {s.name, *s.ring.members, *(s.new.members if s.new else ())}
    name = min((name for name in s.directory.values() if name not in kept), key=lambda name: s.heard_us.get(name, 0))
    del s.directory[node_key(name)]
    for table in (s.heard_us, s.beacons, s.suspects):
        table.pop(name, None)


def heard_lately(s: State, name: NodeId, within_us: int) -> bool:
    return s.now - s.heard_us.get(name, -within_us - 1) <= within_us


def beacon_timeout_expired(s: State, _event: object = None) -> None:
    interval = beacon_interval_us(s)
    s.beacon_at = s.now + interval
    window = HEARD_INTERVALS * interval
    lately = [name for name in s.heard_us if heard_lately(s, name, window)]
    heard = frozenset(node_key(name) for name in lately[-MEMBERS_MAX:])
    members = frozenset(s.ring.keys)
    packet = Beacon(s.ring.number, s.ring.digest, s.name, members, heard).encode()
    s.emit(Broadcast(packet, len(packet)))


def note_beacon(s: State, beacon: Beacon) -> None:
    s.beacons[beacon.sender] = (s.now, beacon)


def suspect(s: State, name: NodeId) -> None:
    """A ring formed without `name`, though it was heard meanwhile."""
    known = s.suspects.get(name)
    failures = known.failures + 1 if known else 0
    pause = min(s.config.suspect_backoff_us << min(failures, 16), s.config.suspect_backoff_max_us) if failures else 0
    s.suspects[name] = Suspect(s.now, failures, s.now + pause)
    s.report("suspect", "heard while a ring formed without it", name=name, failures=failures)


def is_suspect(s: State, name: NodeId) -> bool:
    """Whether a merge with `name` would be in vain as far as the beacons tell."""
    suspicion = s.suspects.get(name)
    return suspicion is not None and not _connected(s, name, suspicion.since_us)


def must_wait(s: State, name: NodeId) -> bool:
    """Whether I should not start a merge with `name` now. One that it starts is another matter: were both sides to wait
    their own pauses out, neither would ever find the other ready."""
    suspicion = s.suspects.get(name)
    return suspicion is not None and s.now < suspicion.not_before_us


def _connected(s: State, name: NodeId, since_us: int) -> bool:
    """Whether beacons newer than `since_us` show every member of my ring and of the suspect's hearing each other."""
    newest = s.beacons.get(name)
    if newest is None or newest[0] <= since_us:
        return False
    theirs = newest[1].members
    mine = frozenset(s.ring.keys)
    return all(mine <= _hears(s, key, since_us) for key in theirs - mine) and all(
        theirs <= _hears(s, key, since_us) for key in mine
    )


def _hears(s: State, key: NodeKey, since_us: int) -> frozenset[NodeKey]:
    """Whom the process with `key` hears, itself included, as far as is known."""
    if key == s.key:
        window = HEARD_INTERVALS * beacon_interval_us(s)
        return frozenset(node_key(name) for name in s.heard_us if heard_lately(s, name, window)) | {key}
    name = s.directory.get(key)
    newest = s.beacons.get(name) if name is not None else None
    if newest is None or newest[0] <= since_us:
        return frozenset()
    return newest[1].heard | {key}
