"""How many examples a property is drawn for: a few in the fast tests, all of them under the marker that CI runs too."""

from __future__ import annotations

import pytest


def draws(few: int, many: int) -> pytest.MarkDecorator:
    """Parametrizes a test by `n_draws`; its property, a function inside, is drawn so often."""
    return pytest.mark.parametrize("n_draws", [few, pytest.param(many, marks=pytest.mark.conformance)])
