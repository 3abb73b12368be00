"""The deterministic simulator: the very engines that run on real networks, on virtual time, networks and disks.

`run_seed` turns a seed into a schedule of faults and load, runs it and checks the traces of all nodes against the
properties of extended virtual synchrony. A run depends on the seed and the engine alone, so any that fails can be
replayed, and `shrink` reduces its schedule to the few actions that matter. See `docs/design/simulator.md`.
"""

from ordercast.sim.engines import ENGINES, EngineSpec, UnknownEngine, find_engine
from ordercast.sim.generate import generate
from ordercast.sim.runner import Result, Violation, run_schedule, run_seed
from ordercast.sim.schedule import Action, Schedule, ScheduleError, format_schedule, parse_schedule

__all__ = [
    "ENGINES",
    "Action",
    "EngineSpec",
    "Result",
    "Schedule",
    "ScheduleError",
    "UnknownEngine",
    "Violation",
    "find_engine",
    "format_schedule",
    "generate",
    "parse_schedule",
    "run_schedule",
    "run_seed",
]
