"""What a deliberate fault is."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """In `module` of the mutant's package, `old` becomes `new`."""

    module: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One fault: what it is called, what it breaks, how it is made.

    `scenario` names the script that shows a fault which costs time alone, or harm that ends with the fault in the
    network, so that no property of a finished trace can speak of it. Without it random seeds have to show the fault.
    """

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    scenario: str | None = None
    package: str = "ordercast.engine.totem"
    engine: str = "totem"
    """Whose seeds have to show it."""
    replications: tuple[str, ...] = ("none",)
    """How their networks are used: each seed once in each of these styles."""
    tests: str | None = None
    """A file of tests, one a requirement, that has to notice the fault as well as the seeds do."""
    tests_alone: bool = False
    """The fault costs time alone: no seed can show it."""
