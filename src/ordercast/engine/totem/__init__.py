"""The Totem single-ring ordering and membership protocol.

Y. Amir, L. E. Moser, P. M. Melliar-Smith, D. A. Agarwal, P. Ciarfella: The Totem Single-Ring Ordering and Membership
Protocol, ACM Transactions on Computer Systems 13 (4), November 1995. Sections (§) and figures in this folder are
that paper's.

A token travels around a logical ring. Its holder broadcasts packets and numbers them from the token's `seq`, so the
order is known as soon as a packet is sent. The token's `aru` says what all members have received, its `rtr` what is
missing, its `fcc` how much was sent. When it is lost, or a stranger is heard, the members gather (Joins), commit (two
rotations of the Commit token), recover what was sent on their old rings, and install the new ring. What is delivered
has extended virtual synchrony: one order through partitions and remerges, and agreement on what was delivered in
which configuration.

    §5 to §8, data    state.py         Figure 4  gather.py      Figure 7  shifts.py
    Figure 3          operational.py   Figure 5  commit.py      §8.2      flow.py
                                       Figure 6  recovery.py    ours      links.py

`table.py` has a handler for every state and event, `engine.py` is the door. docs/totem.md has the messages, the
guarantees and the table as a page, docs/deviations.md the numbered departures from the paper.
"""

from ordercast.engine.totem.engine import Totem
from ordercast.engine.totem.state import Event, Phase, Reason, TotemConfig

__all__ = ["Event", "Phase", "Reason", "Totem", "TotemConfig"]
