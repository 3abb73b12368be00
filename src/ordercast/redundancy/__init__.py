"""The Totem Redundant Ring Protocol (R. R. Koch, L. E. Moser, P. M. Melliar-Smith): one engine over several networks.

The layer stands between any engine and 2 to 8 networks. To the engine it is the host; to the host it is an engine
that is told by which network each train came and says by which network each packet leaves.

Replication styles (§4), each in a module to be held beside the paper's figure:

| style | module | messages and tokens | a loss on one network | throughput of N equal networks |
| --- | --- | --- | --- | --- |
| active | `active`, Figure 2 | over all networks | is masked | that of one |
| passive | `passive`, Figure 4 | over one, in turn | is retransmitted | that of N |
| active-passive:K | `active_passive`, §7 | over K, in turn | is masked | that of N / K |

What is guaranteed, each by a test of that name: A1 every message once; A2, P1 only what no network delivers any more
is requested again; A3, P2 no network falls behind; A4, P3 progress through losses and failures; A5, P4 a network that
has failed for good is found; A6, P5 sporadic loss does not make one faulty.

| module | what it knows |
| --- | --- |
| `layer` | bytes, timers and effects: which part of the layer they are for |
| `state` | the variables under the paper's names, the constants, the token that waits |
| `active`, `passive`, `active_passive` | the styles; `sending` is what the last two share |
| `monitor` | Figure 5, and the problem counters of Figure 2, with the decay that the paper leaves out |
| `probes` | who hears whom by which network; faults that others report; the way back for a mended network |
| `diagnosis` | from who hears whom to the part that is broken |

The departures from the paper are R1 to R10 in docs/deviations.md.
"""

from ordercast.redundancy.layer import Redundant, RedundantEngine, parse_replication
from ordercast.redundancy.state import FaultReason, NetworkConfig

__all__ = ["FaultReason", "NetworkConfig", "Redundant", "RedundantEngine", "parse_replication"]
