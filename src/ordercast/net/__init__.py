"""Sockets and the driver: the host that runs an engine on a real network. Knows no protocol state.

`udp` sends and receives trains, `addresses` and `interfaces` tell where, `storage` keeps an engine's records on disk,
`recorder` writes traces, `driver` is the loop around an engine.
"""
