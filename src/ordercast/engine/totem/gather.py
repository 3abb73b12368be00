"""Figure 4: the Gather state, in which the members of the next ring agree on who they are."""

from __future__ import annotations

from ordercast.engine.contract import Broadcast
from ordercast.engine.totem import links, operational
from ordercast.engine.totem.shifts import shift_to_commit, shift_to_gather
from ordercast.engine.totem.state import NEVER, RING_NUMBER_STEP, Reason, State
from ordercast.wire.ids import NodeId
from ordercast.wire.layout import MEMBERS_MAX
from ordercast.wire.totem import CommitEntry, CommitToken, Join, Leave
from ordercast.wire.train import Train


def foreign_message_received(s: State, sender: NodeId) -> None:
    if sender not in s.my_proc_set and not links.is_suspect(s, sender) and len(s.my_proc_set) < MEMBERS_MAX:
        s.my_proc_set.add(sender)
        shift_to_gather(s, Reason.FOREIGN_MESSAGE)


def join_received(s: State, join: Join) -> None:
    if s.my_proc_set == join.proc_set and s.my_fail_set == join.fail_set:
        note_consensus(s, join)
    elif (join.proc_set <= s.my_proc_set and join.fail_set <= s.my_fail_set) or join.sender in s.my_fail_set:
        return
    elif merge_join(s, join):
        shift_to_gather(s, Reason.JOIN)
        note_consensus(s, join)


def merge_join(s: State, join: Join) -> bool:
    """Merges the sets of a Join into mine; tells whether they grew."""
    before = len(s.my_proc_set) + len(s.my_fail_set)
    s.join_number = max(s.join_number, join.ring_seq)
    if len(s.my_proc_set | join.proc_set) > MEMBERS_MAX:
        s.report("refused", "a Join would make the ring too large", sender=join.sender)
        return False
    s.my_proc_set |= join.proc_set
    if s.name in join.fail_set:
        s.my_fail_set.add(join.sender)
    else:
        s.my_fail_set |= failures_believed(s, join)
    return len(s.my_proc_set) + len(s.my_fail_set) > before


def failures_believed(s: State, join: Join) -> frozenset[NodeId]:
    """Deviation D7: an outsider does not fail a member of my ring that I heard since I entered Gather (erratum 8)."""
    if join.sender in s.ring.members:
        return join.fail_set
    return frozenset(
        name for name in join.fail_set if name not in s.ring.members or s.heard_us.get(name, -NEVER) < s.gather_since
    )


def note_consensus(s: State, join: Join) -> None:
    """A Join with exactly my sets: its sender agrees with me."""
    if s.my_proc_set != join.proc_set or s.my_fail_set != join.fail_set or join.sender in s.my_fail_set:
        return
    s.join_number = max(s.join_number, join.ring_seq)
    wanted = s.members_wanted()
    if s.attempted != wanted:
        s.attempted, s.attempts = wanted, 0
    s.attempts = max(s.attempts, join.attempts)
    if join.sender in s.consensus:
        return
    s.consensus.add(join.sender)
    if wanted <= s.consensus:
        if s.name == min(wanted):
            make_commit_token(s)
        elif s.token_loss_at == NEVER:
            # §6.2.2: consensus is reached, the Commit token has to come.
            s.consensus_at = NEVER
            s.token_loss_at = s.now + s.config.token_loss_timeout_us


def make_commit_token(s: State) -> None:
    """The representative's part of Figure 4: identifier and membership of the proposed ring."""
    members = sorted(s.members_wanted())
    number = max(s.highest_number, s.join_number) + RING_NUMBER_STEP
    token = CommitToken(number, s.nonce, 1, 0, [CommitEntry(name) for name in members])
    shift_to_commit(s, token, Reason.CONSENSUS)


def commit_token_received(s: State, token: CommitToken) -> None:
    if token.rotation != 1 or s.members_wanted() != token.members or token.ring_number <= s.highest_number:
        s.counters["stale"] += 1
        return
    if token.memb_list[0].name == s.name:
        # Only I make tokens of which I am the representative; this one is from a life before a restart.
        s.counters["stale"] += 1
        return
    shift_to_commit(s, token, Reason.COMMIT_TOKEN)


def join_timeout_expired(s: State, _event: object = None) -> None:
    broadcast_join(s)


def broadcast_join(s: State) -> None:
    attempts = s.attempts if s.attempted == s.members_wanted() else 0
    packet = Join(s.name, frozenset(s.my_proc_set), frozenset(s.my_fail_set), s.highest_number, attempts).encode()
    s.joined_us = s.now
    s.join_at = s.now + s.config.join_timeout_us
    s.emit(Broadcast(packet, len(packet)))


def consensus_timeout_expired(s: State, _event: object = None) -> None:
    """Fails whoever has not agreed; those that were heard lately get more time first (deviation D8)."""
    wanted = s.members_wanted()
    silent = wanted - s.consensus
    if not silent:
        # Alone: a process that starts waits this long for others to answer. With others, the Join that completed the
        # consensus has ended this timer.
        assert wanted == {s.name}
        make_commit_token(s)
        return
    if not s.consensus_patient:
        recently = max(s.config.token_loss_timeout_us, 2 * links.beacon_interval_us(s))
        if any(links.heard_lately(s, name, recently) for name in silent):
            s.consensus_patient = True
            s.consensus_at = s.now + s.config.consensus_patience_us - s.config.consensus_timeout_us
            return
    s.my_fail_set |= silent
    shift_to_gather(s, Reason.CONSENSUS_TIMEOUT)


def token_loss_timeout_expired(s: State, _event: object = None) -> None:
    """Consensus was reached, but no Commit token came: the representative is the one who stalls (erratum 6)."""
    wanted = s.members_wanted()
    count_attempt(s, wanted, min(wanted - {s.name}, default=None))
    shift_to_gather(s, Reason.COMMIT_LOSS)


def count_attempt(s: State, members: frozenset[NodeId], culprit: NodeId | None) -> None:
    """Deviation D6: one membership may fail only so often before a member is failed for it (erratum 6)."""
    if s.attempted != members:
        s.attempted, s.attempts = members, 0
    s.attempts += 1
    if s.attempts > s.config.attempts_max and culprit is not None:
        s.my_fail_set.add(culprit)
        s.attempts = 0
        s.report("forced_failure", "the same membership failed too often", name=culprit)


def leave_received(s: State, leave: Leave) -> None:
    """Whoever has left a ring of mine will not agree to the next one."""
    rings = {s.ring.digest} | ({s.new.digest} if s.new else set())
    if leave.sender not in s.my_proc_set or leave.ring_digest not in rings:
        return
    if leave.sender in s.my_fail_set:
        # Another copy of the same leave: it is no sign of life either.
        s.heard_us.pop(leave.sender, None)
    else:
        believe_leave(s, leave)


def believe_leave(s: State, leave: Leave) -> None:
    """Deviation D21: fails the leaver without suspecting it, since it may come back at once."""
    s.heard_us.pop(leave.sender, None)
    s.my_fail_set.add(leave.sender)
    shift_to_gather(s, Reason.LEAVE)


def regular_message_received(s: State, train: Train) -> None:
    """As in the Operational state, unless the set of the old ring's messages is fixed already.

    Once I have said received_flg, another member may have installed and delivered exactly what all of us had. A message
    that came later would be in my set and not in theirs (deviation D9).
    """
    if s.my_received_flg:
        s.counters["stale"] += 1
    else:
        operational.regular_message_received(s, train)
