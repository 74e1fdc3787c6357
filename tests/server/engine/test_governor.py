"""The choice of threads, over a machine that is quiet or busy by decree."""

from __future__ import annotations

from server.engine.governor import ThreadGovernor


def run(governor: ThreadGovernor, n_steps: int, cost_s: dict[int, float], n_tokens: int = 1) -> list[int]:
    """The thread counts chosen over so many steps, each of which takes what the machine charges. Where that is more for more
    threads, they wait for a processor."""
    chosen = []
    for _ in range(n_steps):
        n_threads = governor.choose(n_tokens)
        elapsed_s = cost_s[n_threads]
        share = min(1.0, min(cost_s.values()) / elapsed_s * 2) if n_threads == max(cost_s) else 1.0
        governor.learn(n_tokens, n_threads, elapsed_s, share * n_threads * elapsed_s)
        chosen.append(n_threads)
    return chosen


QUIET = {2: 0.013, 1: 0.022}
BUSY = {2: 0.100, 1: 0.025}
CROWDED_BUT_BETTER = {2: 0.020, 1: 0.022}
STARVED = {2: 3.5, 1: 0.018}  # two spinning threads on one core: each waits for the other to be let go


def test_a_quiet_machine_gets_all_threads() -> None:
    assert set(run(ThreadGovernor(2), 1000, QUIET)) == {2}


def test_a_busy_neighbour_takes_a_thread_and_gives_it_back() -> None:
    governor = ThreadGovernor(2)
    run(governor, 50, QUIET)
    busy = run(governor, 500, BUSY)
    assert busy.index(1) < 5, "it notices within a few steps"
    assert busy.count(2) < 50, "and tries all threads only now and then"
    assert set(run(governor, 300, QUIET)[100:]) == {2}


def test_a_short_disturbance_costs_little() -> None:
    governor = ThreadGovernor(2)
    assert run(governor, 2, BUSY) == [2, 2]
    assert set(run(governor, 50, QUIET)) == {2}
    run(governor, 20, BUSY)
    assert set(run(governor, 50, QUIET)[13:]) == {2}


def test_steps_that_are_crowded_and_still_better_keep_all_threads() -> None:
    governor = ThreadGovernor(2)
    chosen = []
    for _ in range(100):
        n_threads = governor.choose(1)
        elapsed_s = CROWDED_BUT_BETTER[n_threads]
        governor.learn(1, n_threads, elapsed_s, 0.6 * n_threads * elapsed_s)
        chosen.append(n_threads)
    assert chosen.count(1) == 3, "one trial"


def test_a_machine_that_is_busy_from_the_start_is_noticed_too() -> None:
    assert run(ThreadGovernor(2), 40, BUSY).count(1) >= 30


def test_one_starved_step_is_enough_and_its_like_are_a_small_part_of_the_time() -> None:
    governor = ThreadGovernor(2)
    run(governor, 50, QUIET)
    chosen = run(governor, 20_000, STARVED)
    assert chosen[1] == 1
    starved_s = chosen.count(2) * STARVED[2]
    assert starved_s <= 0.15 * (starved_s + chosen.count(1) * STARVED[1])
    assert set(run(governor, 3000, QUIET)[2500:]) == {2}


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
