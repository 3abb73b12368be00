"""Packets: their binary layout and how messages are packed into them. Knows no protocol state and no I/O.

`ids` names processes and rings, `layout` holds what all packets share, `train` is the data packet in batches, `pack`
fills packets with messages, `totem` holds the control packets of the Totem engine.
"""
