"""COReL (paper 003): a durable, majority-ordered global order on top of any engine with extended virtual synchrony.

`layer` is the door. `handler` is Figure 2, `recovery` §3.5.2, `establish` Figure 3, `regular` Order Rule 1 and the
acknowledgements; `plan` computes from State messages what the recovery has to do, `quorum` who may become primary.
`queue` is MQ with its colours, `record` what is on stable storage besides it, `journal` makes steps atomic on disk.
`catchup` and `everyone` are extensions. The theory is in docs/corel.md, departures in docs/deviations.md.
"""

from ordercast.corel.layer import Corel
from ordercast.corel.state import CorelConfig, Phase

__all__ = ["Corel", "CorelConfig", "Phase"]
