"""A process's passage through a regular configuration c: what the specification calls com_p(c).

E8, E10 and E11 compare what processes delivered in com_p(c). In a run without faults all of them deliver the same
sequence, or a beginning of it, so that the comparison that proves it is one of arrays, made in C. Only sequences that
are no beginning of another one are looked at message by message; there are as many of them as c had components.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from ordercast.check.model import Life, Model, Visit


@dataclass(slots=True, eq=False)
class Passage:
    """`sequence` is what p delivered of the messages sent in c, each once: `cut` of them in c, the rest in T after."""

    node: int
    conf: int
    regular: Visit
    transitional: Visit | None
    following: Visit | None
    life: Life
    sequence: array[int]
    cut: int
    # p delivered something where it does not belong, so that its passage may mean something else than an equal one.
    stray: bool
    # Where each message of `sequence` stands among the deliveries, if some had to be left out.
    kept: list[int] | None = None
    earlier: set[int] | None = None

    @property
    def visits(self) -> list[Visit]:
        return [self.regular] if self.transitional is None else [self.regular, self.transitional]

    def place(self, position: int) -> Visit:
        """The configuration in which the message at this position was delivered."""
        return self.regular if position < self.cut or self.transitional is None else self.transitional

    def completed(self) -> bool:
        """p reached its next regular configuration, or the end of a quiet trace."""
        return self.following is not None or self.life.ending == "end"

    def tail(self) -> tuple[int, frozenset[int]] | None:
        """The transitional configuration with its members, if anything was delivered in it."""
        if self.transitional is None or self.cut == len(self.sequence):
            return None
        return self.transitional.conf, self.transitional.members

    def delivered_before_send(self, model: Model, message: int) -> int:
        """How many messages of `sequence` p had delivered in c before it sent this one, in the same life."""
        if not self.life.program_at <= model.messages.sent_at[message] < self.life.program_end:
            return 0
        first, last = self.regular.first, self.regular.last
        after = min(max(model.messages.sent_after[message], first), last)
        return after - first if self.kept is None else min(bisect_left(self.kept, after), self.cut)


def passages_by_conf(model: Model) -> Iterator[tuple[int, list[Passage]]]:
    """All passages through each regular configuration. They are made for one configuration at a time, and let go."""
    followers: dict[int, tuple[Visit | None, Visit | None]] = {}
    for node in model.nodes:
        for life in node.lives:
            for number, visit in enumerate(life.visits):
                if visit.regular:
                    followers[id(visit)] = _after(life.visits, number)
    for conf, visits in model.visits_of.items():
        passages = [_passage(model, visit, *followers[id(visit)]) for visit in visits if visit.regular]
        if passages:
            yield conf, passages


def _after(visits: list[Visit], number: int) -> tuple[Visit | None, Visit | None]:
    """The transitional configuration directly after a regular one, and the next regular one."""
    transitional = visits[number + 1] if number + 1 < len(visits) and not visits[number + 1].regular else None
    following = next((visits[later] for later in range(number + 1, len(visits)) if visits[later].regular), None)
    return transitional, following


def _passage(model: Model, regular: Visit, transitional: Visit | None, following: Visit | None) -> Passage:
    node = model.nodes[regular.node]
    last = regular if transitional is None else transitional
    life = node.lives[regular.life]
    start, stop = regular.first, last.last
    if not node.repeats and regular.pure and last.pure:
        sequence = node.delivered[start:stop]
        cut = regular.last - start
        return Passage(node.index, regular.conf, regular, transitional, following, life, sequence, cut, node.strays)
    kept: list[int] = []
    seen: set[int] = set()
    for nth in range(start, stop):
        message = node.delivered[nth]
        if message not in seen and model.messages.sent_conf[message] == regular.conf:
            seen.add(message)
            kept.append(nth)
    sequence = array("i", [node.delivered[nth] for nth in kept])
    cut = bisect_left(kept, regular.last)
    return Passage(node.index, regular.conf, regular, transitional, following, life, sequence, cut, node.strays, kept)


def begins_with(sequence: array[int], beginning: array[int]) -> bool:
    length = len(beginning)
    return length <= len(sequence) and (sequence if length == len(sequence) else sequence[:length]) == beginning


def common_length(one: array[int], other: array[int]) -> int:
    """The length of the common beginning: halving, so that the comparing is done in C."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def maximal(passages: list[Passage]) -> list[Passage]:
    """The passages that say all that any says of order and holes.

    One that ends within c and whose sequence begins another's part in c adds nothing: each pair of its messages is a
    pair there, in the same configuration. So does one that begins another through the same transitional configuration.
    """
    kept: list[Passage] = []
    for passage in sorted(passages, key=lambda each: len(each.sequence), reverse=True):
        if passage.stray or not any(_says_less(passage, other) for other in kept):
            kept.append(passage)
    return kept


def _says_less(one: Passage, other: Passage) -> bool:
    if other.stray or one.regular.members != other.regular.members or not begins_with(other.sequence, one.sequence):
        return False
    tail = one.tail()
    if tail is None:
        return len(one.sequence) <= other.cut
    return one.cut == other.cut and tail == other.tail()


def delivered_earlier(model: Model, passage: Passage, message: int) -> bool:
    """p delivered the message before it installed c. That is E1's to name; the message is not missing here."""
    if passage.earlier is None:
        passage.earlier = set(model.nodes[passage.node].delivered[: passage.regular.first])
    return message in passage.earlier
