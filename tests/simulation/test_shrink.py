"""The shrinker finds what matters."""

from __future__ import annotations

from toy import toy_spec

from ordercast.sim import Schedule, format_schedule, generate, parse_schedule, run_schedule
from ordercast.sim.shrink import Shrinker, same_failure, weaker, without_node


def test_it_finds_the_two_actions_that_an_artificial_violation_needs() -> None:
    schedule = parse_schedule(
        "nodes 6\nminimum 100\nloss 0.1\n"
        + "".join(f"at {at} send {at + 3} n{at % 6 + 1} size=10..{at + 20}\n" for at in range(1, 40))
        + "at 50 crash n5\nat 51 pause n2 n3\nat 52 restart n5\nat 60 settle 5"
    )

    def fails(candidate: Schedule) -> bool:
        """A crash, and later a pause of somebody else, among at least three nodes."""
        words = [action.what.split() for action in candidate.actions]
        crashes = [index for index, what in enumerate(words) if what[0] == "crash"]
        return candidate.nodes >= 3 and any(what[0] == "pause" for index in crashes for what in words[index:])

    smaller = Shrinker(fails).shrink(schedule)
    assert [action.what.split()[0] for action in smaller.actions] == ["crash", "pause"]
    assert smaller.nodes == 3
    assert smaller.minimum == 0


def test_it_keeps_the_end_of_all_faults_before_the_question_of_liveness() -> None:
    schedule = parse_schedule("nodes 3\nloss 0.1\nat 1 pause n1\nat 2 send 1 n2\nat 3 heal\nat 4 settle 5\n")

    def fails(candidate: Schedule) -> bool:
        return any(action.what.startswith("settle") for action in candidate.actions)

    smaller = Shrinker(fails).shrink(schedule)
    assert [action.what for action in smaller.actions] == ["heal", "settle 5"]
    unhealed = parse_schedule("nodes 3\nloss 0.1\nat 4 settle 5\n")
    assert [action.what for action in Shrinker(fails).shrink(unhealed).actions] == ["settle 5"]


def test_it_stops_when_its_trials_are_used_up() -> None:
    shrinker = Shrinker(lambda schedule: True, trials_max=7)
    shrinker.shrink(generate(1))
    assert shrinker.trials == 7


def test_a_real_failure_shrinks_to_a_script_that_fails_in_the_same_way() -> None:
    # The toy knows no failures: a crashed member forgets what it delivered and delivers it again.
    spec = toy_spec(3)
    schedule = parse_schedule(
        "nodes 3\nloss 0.01\nat 0.5 send 5 n1\nat 1 send 3 n2 size=100..900\nat 1.5 pause n2\nat 1.6 resume n2\n"
        "at 2 crash n3\nat 2.5 restart n3\nat 3 send 1 n1\nat 4 settle 2"
    )
    violation = next(found for found in run_schedule(schedule, spec).violations if found.property == "E2")
    fails = same_failure(violation, spec)

    def with_three(candidate: Schedule) -> bool:
        return candidate.nodes == 3 and fails(candidate)

    smaller = Shrinker(with_three).shrink(schedule)
    verbs = [action.what.split()[0] for action in smaller.actions]
    # A message, a crash, a restart, and anything at all later on, so that time goes by.
    assert verbs[:3] == ["send", "crash", "restart"]
    assert len(verbs) == 4
    replayed = run_schedule(parse_schedule(format_schedule(smaller)), spec)
    assert "E2" in replayed.properties


def test_weaker_statements() -> None:
    assert weaker("loss 0.1 n1 -> n2") == ["loss 0.0500 n1 -> n2"]
    assert weaker("send 8 n1 size=10..900 service=safe") == [
        "send 1 n1 size=10..900 service=safe",
        "send 4 n1 size=10..900 service=safe",
        "send 8 n1 size=24 service=safe",
    ]
    assert weaker("crash n1") == []


def test_a_node_is_taken_out_of_every_statement() -> None:
    schedule = parse_schedule(
        "nodes 4\ncut n1 -> n2\ncut n3 -> n4\ncrash n1 n2 n3\npause n2\npartition n1 n2 | n3 n4\n"
        "partition n2 | n4\nsend 3 n4\nheal\nexpect view n1 n2 at n1"
    )
    assert [action.what for action in without_node(schedule, 2).actions] == [
        "cut n2 -> n3",
        "crash n1 n2",
        "partition n1 | n2 n3",
        "partition n3",
        "send 3 n3",
        "heal",
    ]
