"""The deliberate faults in the layer of corel. Seeds of `ordercast sim --engine corel` have to show each."""

from __future__ import annotations

from .mutant import Edit, Mutant

COREL = "ordercast.corel"


def _mutant(name: str, breaks: str, *edits: tuple[str, str, str]) -> Mutant:
    return Mutant(name, breaks, tuple(Edit(*edit) for edit in edits), package=COREL, engine="corel")


_AFTER = "    s.journal.after(partial(send_phase, s, s.round, MessageKind.{0}, plan.number))\n"
_AT_ONCE = "    send_phase(s, s.round, MessageKind.{0}, plan.number)\n"

_COLOURS = (
    _mutant(
        "corel-ordered-by-one-acknowledgement",
        "Order Rule 1 waits for the first member of PM instead of the last.",
        (
            "regular",
            "everywhere = min(s.acks.get(member, 0) for member in s.members)",
            "everywhere = max(s.acks.get(member, 0) for member in s.members)",
        ),
    ),
    _mutant(
        "corel-ordered-by-a-majority",
        "Order Rule 1 waits for a majority of PM only.",
        (
            "regular",
            "everywhere = min(s.acks.get(member, 0) for member in s.members)",
            "everywhere = sorted(s.acks.get(member, 0) for member in s.members)[(len(s.members) - 1) // 2]",
        ),
    ),
    _mutant(
        "corel-acknowledged-before-durable",
        "An acknowledgement covers what is in the queue and not on the disk yet.",
        (
            "regular",
            "s.acked_place = max(s.acked_place, s.journal.durable_place)",
            "s.acked_place = max(s.acked_place, s.journal.place)",
        ),
    ),
    _mutant(
        "corel-reported-before-durable",
        "The application is told of messages that are not on this member's disk.",
        ("regular", "    durable = s.journal.durable_end\n", "    durable = s.journal.end\n"),
    ),
    _mutant(
        "corel-never-yellow",
        "Messages in a primary component stay red until they are green.",
        ("regular", "if s.primary_component_bit and not s.transitional:", "if s.left and not s.transitional:"),
        ("regular", "position = min(position, s.mq.yellow)", "position = min(position, s.mq.end)"),
    ),
    _mutant(
        "corel-acknowledgements-of-any-round",
        "An acknowledgement that was sent in an earlier round counts in this one.",
        (
            "layer",
            "        if head.round == s.round:\n            regular.acknowledged",
            "        if head.ack:\n            regular.acknowledged",
        ),
    ),
    _mutant(
        "corel-no-acknowledgement-alone",
        "Acknowledgements ride on messages only, so an idle group does not order (erratum 18).",
        (
            "regular",
            "        s.ack_at = s.now + s.config.ack_delay_us\n",
            "        s.ack_at = s.now + 10**4 * s.config.ack_delay_us\n",
        ),
    ),
)

_QUEUE = (
    _mutant(
        "corel-life-not-renewed",
        "A member numbers its messages after a restart like those of its life before.",
        ("layer", "else record.life + 1) % LIVES_MAX", "else record.life) % LIVES_MAX"),
    ),
    _mutant(
        "corel-own-messages-dropped",
        "What the handler held back when it was interrupted is dropped by its sender too.",
        ("regular", "    for item, _ in buffered:\n", "    for item, _ in buffered[:0]:\n"),
    ),
)

_RECOVERY = (
    _mutant(
        "corel-yellow-line-of-the-furthest",
        "Step 3 takes the highest yellow line of the representatives instead of the lowest.",
        (
            "plan",
            "yellow = max(green, min(states[name].yellow for name in representatives))",
            "yellow = max(green, max(states[name].yellow for name in representatives))",
        ),
    ),
    _mutant(
        "corel-yellow-line-forgotten",
        "Step 3 lets all yellow messages turn red.",
        (
            "plan",
            "yellow = max(green, min(states[name].yellow for name in representatives))",
            "yellow = max(green, *(states[name].green for name in representatives))",
        ),
    ),
    _mutant(
        "corel-anybody-represents",
        "Members that know of an older primary component only speak for the component too.",
        (
            "plan",
            "if states[name].last_committed_primary.number == committed.number)",
            "if states[name].last_committed_primary.number >= committed.number - 1)",
        ),
    ),
    _mutant(
        "corel-own-order-first",
        "Step 6 puts the messages of other components in front of the representative's.",
        ("recovery", "rewrite(s, green, [*following, *rest])", "rewrite(s, green, [*rest, *following])"),
    ),
    _mutant(
        "corel-retransmission-rule-ignored",
        "Members retransmit without waiting for what stands before (Figure 4).",
        (
            "recovery",
            "            s.to_send.append((item, plan.responsible[item.stream] == s.name))\n",
            "            s.to_send.extend([(item, True)] if plan.responsible[item.stream] == s.name else [])\n",
        ),
    ),
    _mutant(
        "corel-reds-not-sorted",
        "Concurrent red messages stay in the order in which each member has them.",
        ("recovery", "    ordered = sorted(reds, key=by_ts)\n", "    ordered = reds\n"),
    ),
    _mutant(
        "corel-primary-not-learned",
        "Step 6 does not note the representative's last committed primary component.",
        ("recovery", "    record.last_committed_primary = plan.max_committed\n", ""),
    ),
)

_PRIMARY = (
    _mutant(
        "corel-both-halves-are-subquorums",
        "Under dynamic voting both halves of the last primary component may become the next.",
        ("quorum", "    return first[0] in voters\n", "    return bool(first[0])\n"),
    ),
    _mutant(
        "corel-founded-by-some",
        "Half of the founders found the group.",
        ("quorum", "return len(members) >= founders and", "return len(members) >= founders // 2 and"),
    ),
    _mutant(
        "corel-attempt-not-awaited",
        "A member commits as soon as somebody has attempted.",
        (
            "establish",
            "if s.phase is not Phase.ATTEMPT or not s.attempted.issuperset(s.members):",
            "if s.phase is not Phase.ATTEMPT:",
        ),
    ),
    _mutant(
        "corel-commit-not-awaited",
        "A member establishes the primary component as soon as somebody has committed.",
        (
            "establish",
            "if s.phase is not Phase.COMMIT or not s.committed.issuperset(s.members):",
            "if s.phase is not Phase.COMMIT:",
        ),
    ),
    _mutant(
        "corel-commit-not-durable",
        "The commitment is announced before it is on the disk.",
        ("establish", _AFTER.format("COMMIT"), _AT_ONCE.format("COMMIT")),
    ),
    _mutant(
        "corel-commit-marks-nothing",
        "Committing does not mark the messages yellow.",
        ("establish", "    s.mq.yellow = s.mq.end\n", ""),
    ),
)

_EXTENSIONS = (
    _mutant(
        "corel-pupil-forgets-yellow",
        "A member that is brought up forgets its yellow marks.",
        ("catchup", "    record.group = dict(plan.group)\n", "    s.mq.yellow = s.mq.green\n"),
    ),
    _mutant(
        "corel-pupils-not-served",
        "The donor never reads its log for those who are behind.",
        ("catchup", "    if s.catch_at < s.journal.durable_green:\n", "    if s.catch_at < 0:\n"),
    ),
    _mutant(
        "corel-messages-of-pupils-taken",
        "A message of a member that takes no part in the round is put into the queue.",
        ("regular", "    if item.sender not in s.plan.active:\n", "    if not item.sender:\n"),
    ),
    _mutant(
        "corel-pupil-hears-of-the-first-only",
        "A pupil does not note the primary components that its donor establishes while it is brought up.",
        ("catchup", "    if message.primary > s.record.heard:\n", "    if message.primary > s.record.heard + 2**30:\n"),
    ),
)

COREL_MUTANTS = _COLOURS + _QUEUE + _RECOVERY + _PRIMARY + _EXTENSIONS
