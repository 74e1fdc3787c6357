"""A short run of the fuzzer."""

from __future__ import annotations

import pytest

from tests.conformance.fuzz_grammar import HANG_S, Fuzzer
from tests.oracle import Oracle

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("seed", range(3))
def test_random_texts(seed: int) -> None:
    with Oracle(timeout_s=HANG_S) as oracle:
        fuzzer = Fuzzer(seed, oracle)
        fuzzer.run(15)
    assert not fuzzer.findings
    assert sum(count for name, count in fuzzer.counts.items() if name.endswith("compiled")) > 20
