"""E5, agreement on views: two processes that deliver one configuration deliver it with the same members.

Members are compared as sets: their order in the list means nothing. Two deliveries by one node are E4's to name.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import Model, Visit
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    repeated: dict[int, list[Visit]] = {}
    for _, again in model.repeated:
        repeated.setdefault(again.conf, []).append(again)
    for conf, delivered in model.visits_of.items():
        visits = delivered + repeated.get(conf, [])
        if len({visit.members for visit in visits}) == 1:
            continue
        for visit in visits[1:]:
            for other in visits:
                if other.node != visit.node and other.members != visit.members:
                    return [say.visit(model, other), say.visit(model, visit)]
    return None
