"""Two sizes for each promise: small ones that CI runs, and those that `make prove` runs."""

import random
import secrets
import sys
from pathlib import Path

import pytest

from harness.promise_scale import PromiseScale

_HERE = Path(__file__).parent
# An hour is far above what any proof needs, three minutes above what CI's size does.
_PROVE_TIMEOUT_S = 3600
_CI_TIMEOUT_S = 180


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give these tests the time they need."""
    timeout_s = _PROVE_TIMEOUT_S if config.getoption("--prove") else _CI_TIMEOUT_S
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(timeout_s))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What everything random in the test comes from; printed when the test fails."""
    given: int | None = request.config.getoption("--seed")
    seed = secrets.randbelow(2**32) if given is None else given
    sys.stdout.write(f"--seed {seed}\n")
    return seed


@pytest.fixture
def rng(seed: int) -> random.Random:
    """The test's own generator."""
    return random.Random(seed)


@pytest.fixture
def scale(request: pytest.FixtureRequest, seed: int) -> PromiseScale:
    """Which size runs, and where its figures go."""
    return PromiseScale(request.node.name, seed, is_proof=request.config.getoption("--prove"))
