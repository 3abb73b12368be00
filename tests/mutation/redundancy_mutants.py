"""The deliberate faults of the redundancy layer: each is to be noticed by a requirement's test and by a random seed.

Those marked as costing time alone change nothing that a finished run shows (a message is retransmitted that need not
be, a token waits that need not wait): the requirement's test has to show them.
"""

from __future__ import annotations

from .mutant import Edit, Mutant

_TESTS = "paper/test_001_redundant_ring.py"
_STYLES = ("active", "passive", "active-passive:2")
_TO_THE_ENGINE = "        self.engine.receive(self._clock, data, segment)\n"
_COPY_CAME = "        s.recv_last_token[x] = True\n"
_NEXT_FOR_A_TOKEN = "        self.send_token_via = (self.send_token_via + 1)"


def _mutant(
    name: str, breaks: str, *edits: tuple[str, str, str], styles: tuple[str, ...] = _STYLES, time_alone: bool = False
) -> Mutant:
    return Mutant(
        name,
        breaks,
        tuple(Edit(*edit) for edit in edits),
        package="ordercast.redundancy",
        replications=styles,
        tests=_TESTS,
        tests_alone=time_alone,
    )


_ACTIVE = ("active",)
_IN_TURN = ("passive", "active-passive:2")

REDUNDANCY_MUTANTS = (
    _mutant(
        "messages-by-one-network",
        "Active replication sends messages by the first network alone.",
        ("active", "        for i in self.s.usable:\n            self.s.send(m, i)\n", "        self.s.send(m, 0)\n"),
        styles=_ACTIVE,
        time_alone=True,
    ),
    _mutant(
        "messages-await-copies",
        "Messages are passed on from the first network alone, and not when the first copy comes (A1).",
        (
            "layer",
            _TO_THE_ENGINE,
            "        if via == 0:\n    " + _TO_THE_ENGINE,
        ),
    ),
    _mutant(
        "token-with-the-first-copy",
        "Active replication passes a token on with its first copy: messages are missed that are on their way (A2, A3).",
        (
            "active",
            "if wanted and not received:\n                return\n",
            "if wanted and not received:\n                break\n",
        ),
        ("active", "if not any(s.expected) and s.missing(s.last_token):", "if not s.last_token:"),
        styles=_ACTIVE,
        time_alone=True,
    ),
    _mutant(
        "late-token-is-new",
        "A late copy of an older token is taken for a new one (erratum 15).",
        ("active", "            return  # a late copy (erratum 15)\n", "            s.hold_token(t, mark)\n"),
        styles=_ACTIVE,
        time_alone=True,
    ),
    _mutant(
        "token-timer-restarted",
        "Each copy of a token starts its timer anew (A4).",
        (
            "active",
            _COPY_CAME + "        if s.held:\n",
            _COPY_CAME + "        s.token_timer_at = s.now + s.token_timeout_us\n        if s.held:\n",
        ),
        styles=_ACTIVE,
        time_alone=True,
    ),
    _mutant(
        "active-token-awaits-all",
        "Active replication lets a token wait for all copies for ever (A4).",
        ("active", "        if s.held:\n            s.pass_token()\n", ""),
        (
            "active",
            "expected) if wanted and not s.recv_last_token[i]])\n",
            "expected) if wanted and not s.recv_last_token[i]])\n        s.token_timer_at = 2**62\n",
        ),
        styles=_ACTIVE,
    ),
    _mutant(
        "passive-token-awaits-all",
        "Passive replication lets a token wait for missing messages for ever (P3).",
        (
            "passive",
            "    def token_timer_expired(self) -> None:\n        self.s.pass_token()",
            "    def token_timer_expired(self) -> None:\n        self.s.token_timer_at = 2**62",
        ),
        styles=_IN_TURN,
    ),
    _mutant(
        "problems-not-counted",
        "Missing copies of tokens are not counted (A5): probes alone find a dead network.",
        (
            "monitor",
            "            self.problem_counter[i] += config.forgiveness\n",
            "            self.problem_counter[i] += 0\n",
        ),
        styles=_ACTIVE,
        time_alone=True,
    ),
    _mutant(
        "problems-not-forgiven",
        "Sporadic losses of tokens add up until a sound network is called faulty (A6).",
        ("monitor", "            self.problem_counter[x] -= 1\n", "            self.problem_counter[x] -= 0\n"),
        ("monitor", "[max(0, count - 1) for count in self.problem_counter]", "self.problem_counter"),
        styles=_ACTIVE,
    ),
    _mutant(
        "passive-token-waits-not",
        "Passive replication passes a token on though messages are on their way by other networks (P1).",
        (
            "passive",
            "        if not self.s.missing(self.s.last_token):\n            self.s.pass_token()",
            "        self.s.pass_token()",
        ),
        styles=("passive",),
        time_alone=True,
    ),
    _mutant(
        "message-does-not-free-the-token",
        "The message for which the token waited does not let it go (P1).",
        (
            "passive",
            "        if s.held:\n            self.reconsider()\n        self.monitors.message",
            "        self.monitors.message",
        ),
        styles=_IN_TURN,
        time_alone=True,
    ),
    _mutant(
        "late-copies-not-counted",
        "What a slow network brings of a token that has been sent again counts for the faster ones alone (P5).",
        (
            "passive",
            "        if last is not None and mark.ring == last.ring and tokens",
            "        if order >= 0 and tokens",
        ),
        styles=("passive",),
    ),
    _mutant(
        "tokens-by-one-network",
        "Tokens keep to one network, so that the others may fall behind (P2).",
        ("sending", "self.send_token_via = (self.send_token_via + 1) % len(self.s.usable)", "self.send_token_via = 0"),
        styles=_IN_TURN,
    ),
    _mutant(
        "monitors-blind",
        "The monitors of passive replication never find a network that is behind (P4): probes alone do.",
        ("monitor", "if wanted and most - count[i] > s.config.threshold]", "if wanted and most < count[i]]"),
        styles=_IN_TURN,
        time_alone=True,
    ),
    _mutant(
        "monitors-unforgiving",
        "Sporadic losses add up in the monitors of passive replication (P5).",
        ("monitor", "        self.recv_count = [c + (c < most) for c in self.recv_count]\n", "        del most\n"),
        styles=_IN_TURN,
    ),
    _mutant(
        "burst-counts-by-packet",
        "A monitor counts each train and not each turn, so that unequal bursts look like a fault (P5).",
        (
            "monitor",
            "        if monitor.epochs[x] == s.epoch:\n            return\n",
            "        for _ in range(8):\n            monitor.received(x, s)\n",
        ),
        styles=_IN_TURN,
    ),
    _mutant(
        "lost-token-left-to-the-engine",
        "A token by a dead network waits for the engine's own patience (R10).",
        ("passive", "if self.resends and not mark.idle:", "if self.resends and mark.idle:"),
        styles=("passive",),
        time_alone=True,
    ),
    _mutant(
        "passive-token-twice",
        "Passive replication passes each copy of a token on (erratum 15).",
        (
            "passive",
            "        if order > 0:\n            s.resend_at",
            "        if order >= -5:\n            s.resend_at",
        ),
        styles=("passive",),
        time_alone=True,
    ),
    _mutant(
        "no-network-left",
        "When all networks are called faulty nothing is sent any more (erratum 16).",
        (
            "state",
            "        self.usable = sound or tuple(range(self.config.networks))\n",
            "        self.usable = sound\n",
        ),
        (
            "sending",
            "        n = len(s.usable)\n        packets",
            "        n = len(s.usable)\n        if not n:\n            return\n        packets",
        ),
        (
            "sending",
            _NEXT_FOR_A_TOKEN,
            "        if not self.s.usable:\n            return\n" + _NEXT_FOR_A_TOKEN,
        ),
    ),
    _mutant(
        "faulty-network-unheard",
        "What comes by a faulty network is thrown away, though others may still send by it.",
        (
            "layer",
            _TO_THE_ENGINE,
            "        if not self._s.faulty[via]:\n    " + _TO_THE_ENGINE,
        ),
    ),
    _mutant(
        "probes-blind",
        "Missing probes accuse no network: what the monitors cannot see is never found (A5, P4).",
        ("probes", "        if silent:\n", "        if not s.config.probes_missed:\n"),
    ),
    _mutant(
        "news-ignored",
        "What another process has found counts for nothing here (R7).",
        (
            "layer",
            "            if peer.changes[x] > self._s.changes[x]:\n",
            "            if peer.changes[x] > self._s.changes[x] + 64:\n",
        ),
    ),
    _mutant(
        "old-news-counts",
        "The last count heard holds, so that old news undoes new.",
        (
            "layer",
            "            if peer.changes[x] > self._s.changes[x]:\n",
            "            if peer.changes[x] != self._s.changes[x]:\n",
        ),
    ),
    _mutant(
        "never-repaired",
        "A mended network is not taken back.",
        ("probes", "            if self.ready(x)\n", "            if self.ready(x) and not self.peers\n"),
    ),
    _mutant(
        "repaired-alone",
        "A process takes a network back when it alone is ready.",
        (
            "probes",
            "            and all(peer.ready[x] and peer.changes[x] == s.changes[x] for peer in self.peers.values())\n",
            "",
        ),
    ),
    _mutant(
        "no-hysteresis",
        "A network that fails again and again is taken back as quickly each time.",
        ("probes", "            self.failures[x] += 1\n", "            self.failures[x] += 0\n"),
        time_alone=True,
    ),
    _mutant(
        "membership-in-turn",
        "Packets of the membership protocol leave by sound networks only (R4).",
        (
            "layer",
            "rare, and decide.\n            self._s.send_by_all(effect)\n",
            "rare.\n            self._s.send(effect, self._s.usable[0])\n",
        ),
        time_alone=True,
    ),
    _mutant(
        "retransmitted-in-turn",
        "What was lost once is sent again by the next network alone (R6).",
        (
            "layer",
            "if mark.ring == self._highest[0] and mark.seq <= self._highest[1]:",
            "if mark.ring == self._highest[0] and mark.seq < 0:",
        ),
        styles=_IN_TURN,
        time_alone=True,
    ),
    _mutant(
        "active-passive-awaits-all",
        "Active-passive replication waits for a token by every network (section 7).",
        ("active_passive", "copies = min(s.config.copies, sum(s.expected))", "copies = len(s.expected)"),
        styles=("active-passive:2",),
        time_alone=True,
    ),
    _mutant(
        "one-copy-fewer",
        "Active-passive replication sends one copy less (section 7).",
        ("sending", "min(s.config.copies, n)", "max(1, min(s.config.copies, n) - 1)"),
        styles=("active-passive:2",),
        time_alone=True,
    ),
)
