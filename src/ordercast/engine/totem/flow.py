"""Flow control (§8): how many packets a visit of the token may broadcast. Pure arithmetic.

The paper counts messages; here the packet is what fills a receiver's buffer, so the packet is counted.
"""

from __future__ import annotations

WINDOWS_ABOVE_ARU = 8
"""So many windows of packets may be above the aru: what all have to keep for a member that lags."""


def transmits_allowed(
    *, max_messages: int, window_size: int, fcc: int, my_trc: int, backlog: int, my_pbl: int, my_tbl: int,
    above_aru: int = 0,
) -> int:  # fmt: skip
    """my_trc for this visit: the least of the three constraints of §8.2, and of a fourth one (deviation D30).

    `fcc` and `backlog` are the token's; `my_trc` and `my_pbl` what I added to them one rotation ago. My own last
    broadcasts lie a whole rotation back and are taken out of the count before it is compared with the window
    (deviation D11): left in, they would keep a loaded ring at n/(n+1) of its window.
    """
    if my_tbl <= 0:
        return 0
    window_left = window_size - max(fcc - my_trc, 0)
    all_backlogs = max(backlog - my_pbl, 0) + my_tbl
    fair_share = max(window_size * my_tbl // all_backlogs, 1)
    room = WINDOWS_ABOVE_ARU * window_size - above_aru
    return max(min(max_messages, window_left, fair_share, room), 0)
