"""Figure 6: the Recovery state, in which the members of the new ring exchange what is left of their old rings."""

from __future__ import annotations

from itertools import islice

from ordercast.engine.contract import Broadcast, Run
from ordercast.engine.totem import commit, gather, operational
from ordercast.engine.totem.shifts import shift_to_gather, shift_to_operational, stalled_member
from ordercast.engine.totem.state import NEVER, Reason, Ring, State
from ordercast.wire.layout import WireError
from ordercast.wire.totem import CommitToken, Join, Token
from ordercast.wire.train import RING_BYTES, Train, parse_train


def regular_token_received(s: State, token: Token) -> None:
    ring = s.new
    assert ring is not None
    if operational.accept_token(s, ring, token):
        operational.handle_token(s, ring, token, retrans_messages, before_forwarding)


def retrans_messages(s: State, ring: Ring, token: Token, allowed: int) -> list[Broadcast]:
    """Packets of the old ring go out as messages of the new one, packed and cut like any other (bug 12).

    Deviation D17.
    """
    packer = s.retrans_packer
    assert packer is not None
    take = allowed - packer.packets_waiting()
    if take > 0 and s.retrans_message_queue:
        seqs = list(islice(s.retrans_message_queue, take))
        packer.add([s.ring.received[seq].packet(seq) for seq in seqs])
        for seq in seqs:
            del s.retrans_message_queue[seq]
    if not allowed or not packer.messages:
        return []
    first = token.seq + 1
    burst = packer.burst(ring.prefix, first, allowed)
    token.seq += burst.count
    return operational.keep_own(s, ring, burst, first)


def before_forwarding(s: State, ring: Ring, token: Token) -> None:
    """The code that Figure 6 inserts before the token is forwarded."""
    assert s.retrans_packer is not None
    if s.retrans_message_queue or s.retrans_packer.messages:
        if not token.retrans_flg:
            token.retrans_flg = True
            s.retrans_flg_mine = True
    elif token.retrans_flg and s.retrans_flg_mine:
        token.retrans_flg = False
        s.retrans_flg_mine = False
    s.my_retrans_flg_count = 0 if token.retrans_flg else s.my_retrans_flg_count + 1
    if s.my_retrans_flg_count == 2:
        s.my_install_seq = token.seq
    if s.my_retrans_flg_count >= 2 and ring.my_aru >= s.my_install_seq and not s.my_received_flg:
        s.my_received_flg = True
        s.my_deliver_memb = s.my_trans_memb
    if s.my_retrans_flg_count >= 3 and min(ring.forwarded_aru, ring.previous_aru) >= s.my_install_seq:
        shift_to_operational(s)


def regular_message_received(s: State, train: Train) -> None:
    ring = s.new
    assert ring is not None
    if not ring.add(train):
        s.counters["duplicates"] += 1
        return
    ring.heard_us = s.now
    if train.last_seq > ring.forwarded_seq:
        s.token_retransmission_at = NEVER
    take_old_messages(s, ring)


def take_old_messages(s: State, ring: Ring) -> None:
    """Cuts the old rings' packets out of the new ring's, in the new ring's order, and keeps those of my old ring."""
    while s.recovered_seq < ring.my_aru:
        seq = s.recovered_seq + 1
        train = ring.received[seq]
        s.recovered_seq = min(train.last_seq, ring.my_aru)
        if not train.recovery or train.sender == s.key:
            continue
        at = seq - train.first_seq
        batch = s.recovered.feed(Run(train, at, at + s.recovered_seq - seq + 1))
        for packet in batch or ():
            _take_old_packet(s, packet)


def _take_old_packet(s: State, packet: bytes) -> None:
    if s.obliged or packet[:RING_BYTES] != s.ring.prefix:
        return
    try:
        old = parse_train(packet, len(packet))
    except WireError:
        s.counters["malformed"] += 1
        return
    if old is not None:
        s.ring.add(old)
        s.retrans_message_queue.pop(old.first_seq, None)


def join_received(s: State, join: Join) -> None:
    """A member has given the new ring up."""
    assert s.new is not None
    if join.sender in s.new.members and join.ring_seq >= s.new.number:
        commit.join_received(s, join)


def commit_token_received(s: State, token: CommitToken) -> None:
    """The representative makes the first regular token of the Commit token after its second rotation.

    Once only (bug 5; deviation D10).
    """
    ring = s.new
    assert ring is not None
    if (
        s.regular_token_made
        or ring.representative != s.name
        or token.ring_id != ring.id
        or token.rotation != 2
        or token.memb_index != ring.size - 1
    ):
        s.counters["stale"] += 1
        return
    s.regular_token_made = True
    assert s.retrans_packer is not None
    first = Token(ring.number, ring.digest)
    first.retrans_flg = s.retrans_flg_mine = bool(s.retrans_message_queue)
    ring.heard_us = s.now
    operational.forward_token(s, ring, first)


def token_loss_timeout_expired(s: State, _event: object = None) -> None:
    assert s.new is not None
    late = s.new.heard_us + s.config.token_loss_timeout_us
    if s.now < late:
        s.token_loss_at = late
        return
    gather.count_attempt(s, s.members_wanted(), stalled_member(s))
    shift_to_gather(s, Reason.RECOVERY_LOSS)


def token_retransmission_timeout_expired(s: State, _event: object = None) -> None:
    """Until a regular token was forwarded the Commit token is what has to arrive."""
    assert s.new is not None
    if s.new.forwarded is None:
        commit.token_retransmission_timeout_expired(s)
    else:
        operational.token_retransmission_timeout_expired(s)
