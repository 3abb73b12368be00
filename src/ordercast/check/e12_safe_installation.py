"""E12, safe delivery and installation: a safe delivery in regular c shows that all members of c have installed c.

Violated by a safe delivery in a regular configuration c while some member of c never delivers c. Members that never
deliver c are few, so they are looked for first; only then the deliveries in c are searched for a safe one.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import Model
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    safe = model.messages.safe
    for conf, visits in model.visits_of.items():
        for visit in visits:
            absent = visit.members - model.installers[conf]
            if not visit.regular or not absent:
                continue
            delivered = model.nodes[visit.node].delivered
            for nth in range(visit.first, visit.last):
                if safe[delivered[nth]]:
                    return [
                        f"{say.delivery(model, visit.node, nth)} as safe",
                        say.visit(model, visit),
                        f"{model.names[min(absent)]} never installs {model.confs[conf]}",
                    ]
    return None
