"""The sentences of which evidence is made. Each names the node and the step, so that it can be found in the trace."""

from __future__ import annotations

from ordercast.check.model import CONF_BASE, Model, Visit

Evidence = list[str]

_NAMES_MAX = 12


def nodes(model: Model, indices: frozenset[int] | set[int]) -> str:
    names = sorted(model.names[index] for index in indices)
    more = [f"and {len(names) - _NAMES_MAX} more"] if len(names) > _NAMES_MAX else []
    return "{" + ", ".join(names[:_NAMES_MAX] + more) + "}"


def message(model: Model, number: int) -> str:
    return model.messages.name(number)


def at(model: Model, index: int, place: int) -> str:
    """Node and step of an entry of the node's program."""
    return f"{model.names[index]} step {model.nodes[index].steps[place]}"


def act(model: Model, code: int) -> str:
    if code < 0:
        return f"sends {message(model, ~code)}"
    if code < CONF_BASE:
        return f"delivers {message(model, code)}"
    return f"installs {model.confs[code - CONF_BASE]}"


def visit(model: Model, visit: Visit) -> str:
    kind = "regular" if visit.regular else "transitional"
    where = at(model, visit.node, visit.program_at)
    return f"{where}: installs {kind} {model.confs[visit.conf]} {nodes(model, visit.members)}"


def delivery(model: Model, index: int, nth: int) -> str:
    """The n-th delivery of a node, with the configuration in which it happened."""
    place = model.nodes[index].place_of_delivery(nth)
    here = [visit for visit in model.nodes[index].visits() if visit.first <= nth < visit.last]
    where = f"in {model.confs[here[0].conf]}" if here else "in no configuration"
    return f"{at(model, index, place)}: delivers {message(model, model.nodes[index].delivered[nth])} {where}"


def delivery_of(model: Model, index: int, number: int, visits: list[Visit]) -> str:
    """The delivery of a message within the given visits of a node; if there is none, where else it was delivered."""
    delivered = model.nodes[index].delivered
    first = visits[0].first
    inside = number in delivered[first : visits[-1].last]
    return delivery(model, index, delivered.index(number, first) if inside else delivered.index(number))


def sending(model: Model, number: int) -> str:
    messages = model.messages
    origin, service = messages.origin[number], "safe" if messages.safe[number] else "agreed"
    where = at(model, origin, messages.sent_at[number])
    return f"{where}: sends {messages.name(number)} ({service}) in {model.confs[messages.sent_conf[number]]}"


def ending(model: Model, index: int, life: int) -> str:
    """How a life of a node ended."""
    lived = model.nodes[index].lives[life]
    if lived.ending == "crash":
        return f"{model.names[index]} crashes"
    return f"{model.names[index]} step {lived.ending_step}: {lived.ending}"
