"""Pure protocol engines, one folder a paper, and the contract between them and their hosts.

Nothing in here knows a clock, a socket, a thread, a file or global randomness; a test walks the source to make sure.
"""
