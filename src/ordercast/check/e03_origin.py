"""E3, origin: a process sends only in the regular configuration that it is in.

Violated by a send whose `conf` is not the latest configuration delivered there, or is not regular. The reader holds
each send against the node's latest configuration as it goes; what did not fit is listed in the model.
"""

from __future__ import annotations

from ordercast.check import say
from ordercast.check.model import Model
from ordercast.check.say import Evidence


def check(model: Model) -> Evidence | None:
    for stray in model.stray_sends:
        message = ~model.nodes[stray.node].program[stray.program_at]
        where = say.at(model, stray.node, stray.program_at)
        sends = f"{where}: sends {say.message(model, message)} in {model.confs[stray.conf]}"
        if stray.latest is None:
            return [sends, "no configuration had been delivered there"]
        return [f"{say.visit(model, stray.latest)}, the latest one", sends]
    return None
