"""The deliberate faults. Each replaces text that stands in its module exactly once. Those of corel and of the
redundancy layer are in files of their own."""

from __future__ import annotations

from .corel_mutants import COREL_MUTANTS
from .mutant import Edit, Mutant
from .redundancy_mutants import REDUNDANCY_MUTANTS


def _mutant(name: str, breaks: str, *edits: tuple[str, str, str], scenario: str | None = None) -> Mutant:
    return Mutant(name, breaks, tuple(Edit(*edit) for edit in edits), scenario)


_SAFE_SEQ = "ring.safe_seq = max(ring.safe_seq, min(ring.previous_aru, ring.forwarded_aru))"
_INSTALL = "    s.emit(Install(regular_view(new), transitional, before, between))\n"
_TRANSITIONAL = "transitional = [entry for entry in token.memb_list if entry.old_ring == s.ring.id]"
_NEW_RING = "    s.new = Ring(token.ring_id, members, s.name, s.config.window_size)\n"
_ARU_RULE = "if ring.my_aru < token.aru or token.aru_id in (s.key, NO_NODE):"
_MAY_INSTALL = "if s.my_retrans_flg_count >= 3 and min(ring.forwarded_aru, ring.previous_aru) >= s.my_install_seq:"
_BEYOND_GAP = "(seq > old.my_aru and train.sender not in owed)"
_OWED = "owed = {key for key, name in old.keys.items() if name in s.my_deliver_memb}"
_PERSIST_AND_WAIT = "    set_phase(s, Phase.COMMIT, reason)\n    persist_ring_number(s)\n"
_SERVE = "                s.emit(Broadcast(train.packets(seq, last), train.segment))\n"
_EXCHANGE = "s.retrans_message_queue = dict.fromkeys(sorted(seq for seq in s.ring.received if seq > low_ring_aru))"
_SAID_RECEIVED = (
    "    if s.my_retrans_flg_count >= 2 and ring.my_aru >= s.my_install_seq and not s.my_received_flg:\n",
    "    if s.my_retrans_flg_count >= 2 and not s.my_received_flg:\n",
)
_HIGH_DELIVERED = "    old.safe_seq = max(old.safe_seq, s.high_ring_delivered)\n"
_HIGH_ASSERTED = (
    '    assert old.delivered >= s.high_ring_delivered, "a message that another member delivered is missing"\n'
)
_DISCARD_ASSERTED = (
    '        assert low_ring_aru >= s.ring.low_seq - 1, "a message was discarded that another member still needs"\n'
)
_DISCARD = "        end = min(self.safe_seq, self.delivered) + 1\n"
_FORWARD_COMMIT = "    s.emit(Unicast(s.new.next, s.commit_packet))\n"
_GATHERED_TOKEN = (
    "if token.rotation != 1 or s.members_wanted() != token.members or token.ring_number <= s.highest_number:"
)
_ORIGINATE = (
    "    if burst.finished:\n"
    "        s.emit(Originated(ring.text, burst.first, burst.finished))\n"
    "    token.seq += burst.count\n"
    "    ring.last_own_seq = token.seq\n"
    "    return keep_own(s, ring, burst, first)\n"
)

_DUE = "due = ring.forwarded_seq if s.phase is Phase.OPERATIONAL else token.seq\n"

_ORDER = (
    _mutant(
        "safe-after-one-rotation",
        "A message counts as safe when the aru has reached it once, before the members can know that of each other.",
        ("operational", _SAFE_SEQ, "ring.safe_seq = max(ring.safe_seq, ring.forwarded_aru)"),
    ),
    _mutant(
        "safe-at-once",
        "Safe messages are delivered as soon as agreed ones are.",
        ("state", "if train.service is Service.SAFE and last > safe:", "if not train and last > safe:"),
    ),
    _mutant(
        "delivery-past-a-gap",
        "Messages behind a missing one are delivered, and the missing one never is.",
        (
            "state",
            "seq, aru, safe = self.delivered + 1, self.my_aru,",
            "seq, aru, safe = self.delivered + 1, self.high_seq,",
        ),
        (
            "state",
            "            train = self.received[seq]\n            last = min",
            (
                "            train = self.received.get(seq)\n"
                "            if train is None:\n"
                "                seq += 1\n"
                "                continue\n"
                "            last = min"
            ),
        ),
    ),
    _mutant(
        "agreed-overtakes-safe",
        "Of the messages that can be delivered together the agreed ones come first.",
        (
            "state",
            "        self.delivered = seq - 1\n        return runs\n",
            "        self.delivered = seq - 1\n        return sorted(runs, key=lambda run: run.train.service)\n",
        ),
    ),
    _mutant(
        "agreed-jumps-the-queue",
        "An agreed message that arrives in its turn is delivered past a safe one, which never is.",
        (
            "operational",
            "if train.direct and ring.my_aru == train.last_seq and ring.delivered == train.first_seq - 1:",
            "if train.direct and ring.my_aru == train.last_seq:",
        ),
    ),
    _mutant(
        "token-accepted-twice",
        "A duplicate of the token is worked with like the token itself.",
        (
            "operational",
            "if not ring.holds(token) or token.token_seq <= ring.my_token_seq:",
            "if not ring.holds(token):",
        ),
    ),
    _mutant(
        "aru-not-lowered",
        "A member that misses messages leaves the token's aru above its own.",
        ("operational", _ARU_RULE, "if token.aru_id in (s.key, NO_NODE):"),
    ),
    _mutant(
        "aru-id-not-respected",
        "A member raises the aru that another one has lowered.",
        ("operational", _ARU_RULE, "if True:"),
    ),
    _mutant(
        "aru-follows-seq",
        "A member sets the aru to what was sent instead of what it received.",
        ("operational", "        token.aru = ring.my_aru\n", "        token.aru = token.seq\n"),
    ),
    _mutant(
        "retransmissions-not-served",
        "Requests for retransmission stay on the token for ever.",
        (
            "operational",
            "    if not token.rtr:\n        return 0\n    # The",
            "    if True:\n        return 0\n    # The",
        ),
    ),
    _mutant(
        "requests-dropped-unserved",
        "Requested messages are taken off the list and not sent.",
        ("operational", _SERVE, ""),
    ),
    _mutant(
        "discards-what-is-not-safe",
        "A delivered message is discarded though others may still ask for it.",
        (
            "state",
            _DISCARD,
            "        end = self.delivered + 1\n",
        ),
        ("shifts", _DISCARD_ASSERTED, ""),
    ),
    _mutant(
        "own-messages-not-kept",
        "A sender does not keep what it broadcasts.",
        (
            "operational",
            "        ring.add(Train(data, segment, marks, seq, s.key, marks[0] & KEPT))\n",
            "",
        ),
    ),
    _mutant(
        "originated-after-broadcast",
        "A message leaves before the sender's log knows of it.",
        (
            "operational",
            _ORIGINATE,
            (
                "    token.seq += burst.count\n"
                "    ring.last_own_seq = token.seq\n"
                "    s.effects += keep_own(s, ring, burst, first)\n"
                "    if burst.finished:\n"
                "        s.emit(Originated(ring.text, burst.first, burst.finished))\n"
                "    return []\n"
            ),
        ),
    ),
    _mutant(
        "partly-sent-message-not-resent",
        "A message of which some packets went out on the old ring is continued, not sent again, on the new one.",
        ("shifts", "    s.new_message_queue.void()\n", ""),
    ),
)

_RECOVERY = (
    _mutant(
        "no-transitional-view",
        "The last messages of a ring are delivered in it, and the next ring follows without a transitional view.",
        (
            "shifts",
            _INSTALL,
            "    s.emit(Deliver(old.text, before + between))\n    s.emit(Install(regular_view(new)))\n",
        ),
    ),
    _mutant(
        "transitional-members-wrong",
        "The transitional view holds whoever was once in the old ring, not who comes from it directly.",
        (
            "shifts",
            _TRANSITIONAL,
            "transitional = [entry for entry in token.memb_list if entry.name in s.ring.members]",
        ),
    ),
    _mutant(
        "obligations-forgotten",
        "Every recovery begins anew, even where a member may have installed the ring that failed (erratum 5).",
        ("shifts", "s.obliged = all(entry.received_flg for entry in transitional)", "s.obliged = False"),
        scenario="totem-erratum-05-obligations",
    ),
    _mutant(
        "obligations-shrink",
        "my_deliver_memb follows the transitional members although all had said received_flg (erratum 5).",
        (
            "shifts",
            "    if not s.obliged:\n",
            "    s.my_deliver_memb = trans_memb\n    if not s.obliged:\n",
        ),
        scenario="totem-erratum-05-obligations",
    ),
    _mutant(
        "received-flag-kept",
        "received_flg stays set when a later recovery has to exchange messages again (erratum 5).",
        (
            "shifts",
            "        s.my_received_flg = False\n        s.my_deliver_memb = trans_memb\n",
            "        s.my_deliver_memb = trans_memb\n",
        ),
        scenario="totem-erratum-05-flag-reset",
    ),
    _mutant(
        "old-ring-overwritten",
        "The old ring's identifier becomes that of the ring being formed, as in Figure 7 (erratum 4).",
        ("shifts", _NEW_RING, _NEW_RING + "    s.ring.id = token.ring_id\n"),
        (
            "shifts",
            _TRANSITIONAL,
            (
                "mine = token.memb_list[members.index(s.name)].old_ring\n"
                "    transitional = [entry for entry in token.memb_list if entry.old_ring == mine]"
            ),
        ),
    ),
    _mutant(
        "delivers-beyond-the-gap",
        "Behind a gap everybody's messages are delivered, not only those of my_deliver_memb.",
        ("shifts", _OWED, "owed = set(old.keys)"),
    ),
    _mutant(
        "nothing-beyond-the-gap",
        "Behind a gap nothing is delivered, not even my own messages.",
        ("shifts", _BEYOND_GAP, "seq > old.my_aru"),
    ),
    _mutant(
        "own-messages-not-delivered",
        "Behind a gap my own messages are not delivered.",
        ("shifts", _OWED, _OWED.replace("in s.my_deliver_memb", "in s.my_deliver_memb - {s.name}")),
    ),
    _mutant(
        "only-the-members-messages",
        "The transitional view delivers what my_deliver_memb sent, even before the first gap (erratum 14).",
        ("shifts", _BEYOND_GAP, "train.sender not in owed"),
    ),
    _mutant(
        "nothing-exchanged",
        "The members of the old ring do not tell each other what the others have missed.",
        ("shifts", _EXCHANGE, "s.retrans_message_queue = {}"),
    ),
    _mutant(
        "exchange-from-the-highest-aru",
        "Only what the best of the members has missed is exchanged.",
        ("shifts", "low_ring_aru = min(entry.my_aru", "low_ring_aru = max(entry.my_aru"),
    ),
    _mutant(
        "not-frozen",
        "Messages of the old ring are still taken in after received_flg was said.",
        ("gather", "    if s.my_received_flg:\n", "    if not s:\n"),
        scenario="totem-recovery-frozen-set",
    ),
    _mutant(
        "installs-after-one-rotation",
        "The new ring is installed by the first token without retrans_flg.",
        ("recovery", _MAY_INSTALL, _MAY_INSTALL.replace("count >= 3", "count >= 1")),
    ),
    _mutant(
        "installs-without-aru",
        "The new ring is installed though members may still miss recovered messages.",
        ("recovery", _MAY_INSTALL, "if s.my_retrans_flg_count >= 3:"),
        scenario="totem-bug-11-long-recovery",
    ),
    _mutant(
        "received-said-too-early",
        "received_flg is said before all recovered messages are received.",
        ("recovery", *_SAID_RECEIVED),
        scenario="totem-erratum-05-received-flag",
    ),
    _mutant(
        "anyone-clears-retrans-flag",
        "retrans_flg is cleared by members that did not set it.",
        ("recovery", "elif token.retrans_flg and s.retrans_flg_mine:", "elif token.retrans_flg:"),
        scenario="totem-recovery-flag-of-another",
    ),
    _mutant(
        "high-ring-delivered-ignored",
        "What another member has delivered in the old ring is delivered in the transitional view here.",
        ("shifts", _HIGH_DELIVERED, ""),
        ("shifts", _HIGH_ASSERTED, ""),
    ),
    _mutant(
        "old-packets-of-any-ring",
        "Recovered packets of another old ring are taken for those of mine.",
        ("recovery", "if s.obliged or packet[:RING_BYTES] != s.ring.prefix:", "if s.obliged:"),
    ),
)

_MEMBERSHIP = (
    _mutant(
        "ring-number-not-stored",
        "The Commit token is forwarded and the number of its ring is not written.",
        ("shifts", _PERSIST_AND_WAIT, _PERSIST_AND_WAIT.replace("persist_ring_number", "forward_commit_token")),
    ),
    _mutant(
        "commit-token-before-durable",
        "The Commit token is forwarded before the number of its ring is durable (erratum 10).",
        ("shifts", _PERSIST_AND_WAIT, _PERSIST_AND_WAIT + "    s.pending_write = None\n    forward_commit_token(s)\n"),
    ),
    _mutant(
        "singleton-before-durable",
        "A process that starts installs its ring before the number is durable (erratum 10).",
        (
            "engine",
            "        persist_ring_number(self.state)\n",
            "        persist_ring_number(self.state)\n        self.written(now, self.state.writes)\n",
        ),
    ),
    _mutant(
        "nonce-ignored",
        "A process with new storage makes identifiers that its earlier life has used.",
        ("engine", "number + RING_NUMBER_STEP, nonce, rows()", "number + RING_NUMBER_STEP, 0, rows()"),
    ),
    _mutant(
        "number-from-the-old-ring",
        "A new ring's number starts from the installed ring's, so that an attempt that failed is repeated by name.",
        ("gather", "number = max(s.highest_number, s.join_number)", "number = max(s.ring.number, s.join_number)"),
        scenario="totem-bug-01-identifier-again",
    ),
    _mutant(
        "late-write-believed",
        "The end of a write for an attempt that was given up counts for the next attempt.",
        ("commit", "    if write_id == s.pending_write:\n", "    if s.pending_write is not None:\n"),
        scenario="totem-erratum-10-durable-number",
    ),
    _mutant(
        "commit-rotation-ignored",
        "A second copy of the first rotation's Commit token counts as the second rotation.",
        ("commit", "elif token.rotation == 2:", "elif token.rotation:"),
        # My entry of such a copy is empty, which would stop it too.
        ("commit", " or mine.old_ring != s.ring.id", ""),
        scenario="totem-erratum-09-commit-rotation",
    ),
    _mutant(
        "stale-commit-token-accepted",
        "Gather takes a Commit token of a ring that was given up (bug 4).",
        ("gather", _GATHERED_TOKEN, "if token.rotation != 1 or s.members_wanted() != token.members:"),
    ),
    _mutant(
        "two-first-tokens",
        "A duplicate of the Commit token makes another first regular token (bug 5).",
        ("recovery", "        s.regular_token_made\n        or ring.representative", "        ring.representative"),
        scenario="totem-bug-05-duplicate-commit-token",
    ),
    _mutant(
        "token-in-gather",
        "Gather works with the old ring's token (erratum 3).",
        (
            "table",
            'Event.REGULAR_TOKEN: ignored("erratum 3: regular tokens count again in Recovery")',
            "Event.REGULAR_TOKEN: operational.regular_token_received",
        ),
    ),
    _mutant(
        "silent-members-awaited",
        "Gather waits for ever for the Joins of members that are silent.",
        (
            "gather",
            "    s.my_fail_set |= silent\n    shift_to_gather(s, Reason.CONSENSUS_TIMEOUT)",
            "    shift_to_gather(s, Reason.CONSENSUS_TIMEOUT)",
        ),
        scenario="partition",
    ),
    _mutant(
        "fail-set-forgotten",
        "Each time the sets change it is forgotten who has failed.",
        (
            "shifts",
            "    s.consensus_patient = False\n    s.consensus = {s.name}\n",
            "    s.consensus_patient = False\n    s.consensus = {s.name}\n    s.my_fail_set = set()\n",
        ),
    ),
    _mutant(
        "no-patience-with-commit-loss",
        "A lost Commit token is not noticed in the Commit state.",
        (
            "shifts",
            _FORWARD_COMMIT + "    s.token_loss_at = s.now + s.config.token_loss_timeout_us\n",
            _FORWARD_COMMIT + "    s.token_loss_at = NEVER\n",
        ),
    ),
    _mutant(
        "clock-may-go-back",
        "Time runs backwards with the host's clock.",
        ("engine", "        if now + self._behind_us < s.now:\n", "        if not self:\n"),
        scenario="totem-bug-22-clock-jumps",
    ),
    _mutant(
        "token-held-for-ever",
        "Whoever rests with the token waits to be woken.",
        (
            "operational",
            "    s.hold_at = s.now + (s.config.token_hold_us if idle else s.config.stall_pace_us)\n",
            "    s.hold_at = NEVER\n",
        ),
    ),
    _mutant(
        "retransmission-postpones-loss",
        "Each retransmission of the token starts the wait for it anew, so that its loss is never noticed (bug 8).",
        (
            "operational",
            "    arm_token_retransmission(s, ring)\n\n\ndef foreign",
            (
                "    arm_token_retransmission(s, ring)\n"
                "    s.token_loss_at = s.now + s.config.token_loss_timeout_us\n\n\ndef foreign"
            ),
        ),
    ),
    _mutant(
        "left-too-early",
        "A process leaves before the others have its messages.",
        (
            "operational",
            "    if s.new_message_queue.messages or min(ring.safe_seq, ring.delivered) < ring.last_own_seq:\n",
            "    if s.new_message_queue.messages:\n",
        ),
    ),
)

_ENDURANCE = (
    _mutant(
        "suspects-forgotten",
        "Processes that cannot hear each other are taken into every attempt: rings form for ever (bug 18).",
        (
            "links",
            "return suspicion is not None and not _connected(s, name, suspicion.since_us)",
            "return suspicion is s",
        ),
        ("links", "return suspicion is not None and s.now < suspicion.not_before_us", "return suspicion is s"),
        scenario="totem-bug-18-one-way-links",
    ),
    _mutant(
        "deaf-member-kept",
        "A member that fails to receive is never failed (bug 9).",
        (
            "operational",
            "if ring.my_aru_count > s.config.fail_to_rcv_const and token.aru_id",
            "if not ring and token.aru_id",
        ),
        scenario="totem-bug-09-deaf-node",
    ),
    _mutant(
        "deaf-member-fails-itself",
        "The member that fails to receive is failed by itself, as in Figure 3 (erratum 1).",
        ("operational", "and token.aru_id != s.key and ring.my_aru > token.aru:", "and token.aru_id == s.key:"),
        scenario="totem-bug-09-deaf-node",
    ),
    _mutant(
        "token-not-retransmitted",
        "A lost token is not sent again, so that each loss costs a new ring.",
        (
            "operational",
            "    s.emit(Unicast(ring.next, ring.forwarded))\n    if ring.forwarded_idle",
            "    if ring.forwarded_idle",
        ),
        scenario="totem-bug-08-retransmitted-token",
    ),
    _mutant(
        "commit-token-not-retransmitted",
        "A lost Commit token is not sent again.",
        ("commit", "    s.emit(Unicast(s.new.next, s.commit_packet))\n", ""),
        scenario="totem-bug-04-stale-commit-token",
    ),
    _mutant(
        "attempts-not-counted",
        "A membership that cannot be installed is tried for ever (erratum 6).",
        ("gather", "    s.attempts += 1\n", ""),
        scenario="totem-erratum-06-forced-failure",
    ),
    _mutant(
        "large-gap-not-requested",
        "Packets are not asked for while more than 64 are missing (bug 7).",
        ("operational", "    if ring.my_aru >= up_to:\n", "    if not 0 < up_to - ring.my_aru <= 64:\n"),
        scenario="totem-bug-07-large-gap",
    ),
    _mutant(
        "stale-join-breaks-the-ring",
        "A Join from before the ring was formed breaks it (bug 6, erratum 7).",
        ("operational", "if join.ring_seq < s.ring.number:", "if join.ring_seq < 0:"),
        scenario="totem-bug-06-late-joins",
    ),
    _mutant(
        "wake-not-sent",
        "Whoever has something to send waits until the representative's rest is over.",
        (
            "operational",
            "    s.emit(Unicast(ring.representative, Wake(ring.number, ring.digest, s.key).encode()))\n",
            "",
        ),
        scenario="totem-idle-ring-wakes",
    ),
    _mutant(
        "leave-not-heard",
        "The others notice an announced leave by the leaver's silence only (bug 15).",
        (
            "operational",
            "if leave.sender in s.ring.members and leave.ring_digest == s.ring.digest:",
            "if leave.sender in s.ring.members and not leave:",
        ),
        scenario="totem-bug-15-announced-leave",
    ),
    _mutant(
        "one-record-of-the-number",
        "The ring number has one record on the disk, which a torn write destroys (bug 16).",
        ("shifts", "key = RING_NUMBER_KEYS[s.writes % 2]", "key = RING_NUMBER_KEYS[0]"),
        scenario="totem-bug-16-torn-ring-number",
    ),
)

_ACCELERATION = (
    _mutant(
        "numbers-not-counted-ahead",
        "The token goes ahead of the messages and does not count them: the next member uses their numbers again.",
        (
            "operational",
            "    token.seq += burst.count\n    ring.last_own_seq = token.seq\n",
            "    ring.last_own_seq = token.seq + burst.count\n",
        ),
    ),
    _mutant(
        "nothing-is-due",
        "What is missing is asked for up to the aru of the last rotation, so never.",
        ("operational", "due = ring.forwarded_seq if", "due = ring.forwarded_aru if"),
    ),
    _mutant(
        "requests-what-is-on-its-way",
        "A member asks for all that the token counts, though it goes ahead of the messages: all is sent many times.",
        ("operational", _DUE, "due = token.seq\n"),
        scenario="totem-acceleration",
    ),
    _mutant(
        "numbered-and-not-sent",
        "Messages that the token goes ahead of are not sent until somebody asks for them.",
        ("operational", "    if ahead:\n        s.effects += own\n    if s.phase", "    if s.phase"),
        scenario="totem-acceleration",
    ),
)

MUTANTS = _ORDER + _RECOVERY + _MEMBERSHIP + _ENDURANCE + _ACCELERATION + COREL_MUTANTS + REDUNDANCY_MUTANTS
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
