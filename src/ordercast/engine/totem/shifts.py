"""Figure 7: what a process does when it shifts from one state to another."""

from __future__ import annotations

from ordercast.engine.contract import Deliver, Install, Kind, Persist, Run, Unicast, View
from ordercast.engine.totem import links
from ordercast.engine.totem.state import NEVER, RING_NUMBER_KEYS, Phase, Reason, Ring, State
from ordercast.wire.ids import NO_NODE, NodeId
from ordercast.wire.totem import CommitToken, encode_ring_record

PAST_RINGS_MAX = 64
WINDOWS_UNDER_WAY = 3
"""What a member may not have read yet when it takes the token: the messages of a rotation, those of the rotation before
whose senders sent the token ahead of them, and retransmissions, each at most a window."""


def set_phase(s: State, phase: Phase, reason: Reason) -> None:
    s.report("phase", reason.value, frm=s.phase.name, to=phase.name)
    s.phase = phase
    s.row = s.rows[phase]
    s.active = s.new if phase is Phase.RECOVERY and s.new is not None else s.ring


def shift_to_gather(s: State, reason: Reason) -> None:
    if s.phase in (Phase.OPERATIONAL, Phase.STARTING):
        s.gather_since = s.now
    if s.phase is not Phase.GATHER:
        abandon_new_ring(s)
    s.held, s.hold_at, s.wake_pending = None, NEVER, False
    s.token_loss_at = s.token_retransmission_at = NEVER
    # Deviation D22: a change of the sets is told at once, but not more often than join_pace_us. The Joins of many
    # members that start together would otherwise multiply.
    s.join_at = max(s.now, s.joined_us + s.config.join_pace_us)
    s.consensus_at = s.now + s.config.consensus_timeout_us
    s.consensus_patient = False
    s.consensus = {s.name}
    set_phase(s, Phase.GATHER, reason)


def abandon_new_ring(s: State) -> None:
    """What Figure 6 does on a token loss: the new ring's messages are dropped, the old ring's are kept.

    What was recovered so far stays in the old ring and may have raised its my_aru.
    """
    s.new = None
    s.commit = None
    s.commit_packet = None
    s.pending_write = None
    s.retrans_message_queue = {}
    s.retrans_packer = None
    s.recovered.reset()


def shift_to_commit(s: State, token: CommitToken, reason: Reason) -> None:
    """Fills in my entry of the Commit token. It leaves once its ring number is durable (erratum 10; deviation D12)."""
    members = tuple(entry.name for entry in token.memb_list)
    entry = token.memb_list[members.index(s.name)]
    entry.filled = True
    entry.old_ring = s.ring.id
    entry.my_aru = s.ring.my_aru
    entry.high_delivered = s.ring.delivered
    entry.received_flg = s.my_received_flg
    # Deviation D24: whatever may be under way at once fits the smallest receive buffer.
    entry.window = max(min(s.config.window_size, s.config.receive_window // WINDOWS_UNDER_WAY), 1)
    token.memb_index = members.index(s.name)
    s.highest_number = token.ring_number
    # Deviation D4: the old ring stays what it is.
    s.new = Ring(token.ring_id, members, s.name, s.config.window_size)
    s.commit = token
    s.regular_token_made = False
    s.join_at = s.consensus_at = NEVER
    s.token_loss_at = s.now + s.config.token_loss_timeout_us
    set_phase(s, Phase.COMMIT, reason)
    persist_ring_number(s)


def persist_ring_number(s: State) -> None:
    s.writes += 1
    s.pending_write = s.writes
    key = RING_NUMBER_KEYS[s.writes % 2]
    s.emit(Persist(s.writes, key, encode_ring_record(s.highest_number, s.nonce)))


def forward_commit_token(s: State) -> None:
    assert s.new is not None
    assert s.commit is not None
    s.commit_packet = s.commit.encode()
    s.emit(Unicast(s.new.next, s.commit_packet))
    s.token_loss_at = s.now + s.config.token_loss_timeout_us
    s.token_retransmission_at = s.now + s.config.token_retransmission_timeout_us


def shift_to_recovery(s: State, token: CommitToken) -> None:
    """The second rotation: everybody's entries are known, so is what has to be exchanged."""
    assert s.new is not None
    members = s.new.members
    token.memb_index = members.index(s.name)
    s.commit = token
    s.new.window = min(s.config.window_size, *(max(entry.window, 1) for entry in token.memb_list))
    s.new.heard_us = s.now
    transitional = [entry for entry in token.memb_list if entry.old_ring == s.ring.id]
    trans_memb = frozenset(entry.name for entry in transitional)
    assert s.name in trans_memb
    assert not s.my_trans_memb or trans_memb <= s.my_trans_memb, (
        "the transitional membership grew before an installation"
    )
    s.my_trans_memb = trans_memb
    s.retrans_message_queue = {}
    s.retrans_packer = s.new_packer()
    s.recovered.reset()
    s.recovered_seq = 0
    s.obliged = all(entry.received_flg for entry in transitional)
    if not s.obliged:
        # Deviation D5: somebody has not received everything, so nobody has installed, and nothing is owed yet
        # (erratum 5).
        s.my_received_flg = False
        s.my_deliver_memb = trans_memb
        low_ring_aru = min(entry.my_aru for entry in transitional)
        s.high_ring_delivered = max(entry.high_delivered for entry in transitional)
        assert low_ring_aru >= s.ring.low_seq - 1, "a message was discarded that another member still needs"
        s.retrans_message_queue = dict.fromkeys(sorted(seq for seq in s.ring.received if seq > low_ring_aru))
    s.my_install_seq = 0
    s.my_retrans_flg_count = 0
    s.retrans_flg_mine = False
    set_phase(s, Phase.RECOVERY, Reason.SECOND_ROTATION)
    forward_commit_token(s)


def shift_to_operational(s: State) -> None:
    """§7.2, steps 2 to 6, as one atomic effect."""
    old, new = s.ring, s.new
    assert new is not None
    before = deliverable_on_old_ring(s, old)
    transitional = transitional_view(s, new)
    between = deliverable_in_transitional(s, old)
    s.emit(Install(regular_view(new), transitional, before, between))
    become_member(s, new)
    set_phase(s, Phase.OPERATIONAL, Reason.INSTALLED)
    runs = new.take_deliverable()
    if runs:
        s.emit(Deliver(new.text, runs))


def become_member(s: State, new: Ring) -> None:
    """my_ring_id and my_memb change here and nowhere else (deviation D4)."""
    s.past_rings[s.ring.digest] = None
    while len(s.past_rings) > PAST_RINGS_MAX:
        del s.past_rings[next(iter(s.past_rings))]
    for name in sorted(s.my_fail_set):
        if s.heard_us.get(name, -NEVER) >= s.gather_since:
            links.suspect(s, name)
    for name in new.members:
        s.suspects.pop(name, None)
    s.ring = new
    s.new = None
    s.commit = None
    s.commit_packet = None
    s.my_proc_set = set(new.members)
    s.my_fail_set = set()
    s.my_trans_memb = s.my_deliver_memb = frozenset()
    s.my_received_flg = s.obliged = False
    s.high_ring_delivered = 0
    s.retrans_message_queue = {}
    s.retrans_packer = None
    s.recovered.reset()
    s.attempts, s.attempted = 0, frozenset()
    s.join_number = 0
    s.new_message_queue.void()
    s.counters["views"] += 1


def deliverable_on_old_ring(s: State, old: Ring) -> list[Run]:
    """Step 2: in order up to the first gap or the first safe message above high_ring_delivered."""
    old.safe_seq = max(old.safe_seq, s.high_ring_delivered)
    runs = old.take_deliverable()
    assert old.delivered >= s.high_ring_delivered, "a message that another member delivered is missing"
    return runs


def deliverable_in_transitional(s: State, old: Ring) -> list[Run]:
    """Step 4 with erratum 14: everything before the first gap; beyond it, what my_deliver_memb sent (deviation D16)."""
    runs: list[Run] = []
    owed = {key for key, name in old.keys.items() if name in s.my_deliver_memb}
    for seq in sorted(seq for seq in old.received if seq > old.delivered):
        train = old.received[seq]
        if train.recovery or (seq > old.my_aru and train.sender not in owed):
            continue
        at = seq - train.first_seq
        if runs and runs[-1].train is train and runs[-1].stop == at:
            runs[-1] = Run(train, runs[-1].start, at + 1)
        else:
            runs.append(Run(train, at, at + 1))
    return runs


def regular_view(ring: Ring) -> View:
    return View(Kind.REGULAR, ring.text, ring.number, ring.members)


def transitional_view(s: State, new: Ring) -> View:
    """Deviation D2: named after the ring it leads to and its lowest member, which no other one shares (erratum 2)."""
    members: tuple[NodeId, ...] = tuple(sorted(s.my_trans_memb))
    return View(Kind.TRANSITIONAL, f"{new.text}/{members[0]}", new.number - 1, members)


def stalled_member(s: State) -> NodeId | None:
    """Deviation D6: the member that stalls the ring being formed, as far as I can tell (erratum 6)."""
    others = sorted(s.members_wanted() - {s.name})
    if s.new is not None and s.phase is Phase.RECOVERY and s.new.stall_owner not in (NO_NODE, s.key):
        return s.new.keys.get(s.new.stall_owner)
    if s.commit is not None and s.phase is Phase.COMMIT:
        for entry in s.commit.memb_list:
            if not entry.filled and entry.name != s.name:
                return entry.name
    return others[0] if others else None
