"""The choice of threads, over a machine that is quiet or busy by decree."""

from __future__ import annotations

from server.engine.governor import ThreadGovernor


def run(governor: ThreadGovernor, n_steps: int, cost_s: dict[int, float], n_tokens: int = 1) -> list[int]:
    """The thread counts chosen over so many steps, each of which takes what the machine charges."""
    chosen = []
    for _ in range(n_steps):
        n_threads = governor.choose(n_tokens)
        governor.learn(n_tokens, n_threads, cost_s[n_threads])
        chosen.append(n_threads)
    return chosen


QUIET = {2: 0.013, 1: 0.022}
BUSY = {2: 0.100, 1: 0.025}


def test_a_quiet_machine_gets_all_threads_but_for_one_short_trial() -> None:
    chosen = run(ThreadGovernor(2), 1000, QUIET)
    assert chosen.count(1) == 3
    assert set(chosen[10:]) == {2}


def test_a_busy_neighbour_takes_a_thread_and_gives_it_back() -> None:
    governor = ThreadGovernor(2)
    run(governor, 50, QUIET)
    busy = run(governor, 500, BUSY)
    assert busy.index(1) < 5, "it notices within a few steps"
    assert busy.count(2) < 50, "and tries all threads only now and then"
    assert set(run(governor, 300, QUIET)[100:]) == {2}


def test_a_machine_that_is_busy_from_the_start_is_noticed_too() -> None:
    assert run(ThreadGovernor(2), 40, BUSY)[-30:] == [1] * 30


def test_the_servers_own_work_takes_a_thread_at_once_and_teaches_nothing() -> None:
    governor = ThreadGovernor(4)
    governor.is_busy = True
    assert set(run(governor, 20, {3: 9.0})) == {3}
    governor.is_busy = False
    assert run(governor, 3, {4: 0.01, 3: 0.02}) == [4] * 3


def test_batches_of_other_sizes_are_judged_apart() -> None:
    governor = ThreadGovernor(2)
    run(governor, 50, BUSY, n_tokens=1)
    assert run(governor, 1, QUIET, n_tokens=64) == [2]


def test_one_thread_stays_one() -> None:
    assert run(ThreadGovernor(1), 3, {1: 1.0}) == [1] * 3
