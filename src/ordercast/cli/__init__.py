"""The command line: `main` and one module a command, each with `add_parser` and `run`; arguments and output, no logic.

Exit status: 0 for success, 1 for a negative result, 2 for bad usage or bad input with one clear line.
"""
