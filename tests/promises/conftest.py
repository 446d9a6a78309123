"""Two sizes of each promise test: the small one of CI, and the full one of `make prove`."""

import random
import secrets
import sys
from pathlib import Path

import pytest

from harness.promise_scale import PromiseScale

_HERE = Path(__file__).parent
# The suites and the servers of others have no small size.
_PROOFS_ALONE = frozenset({"test_a_real_model.py", "test_mcp_conformance.py", "test_phoenix.py"})
# The longest proof, 700 faults with PostgreSQL, takes 50 minutes on a quiet machine. Tests of CI's
# size have the timeout of all tests.
_PROVE_TIMEOUT_S = 3 * 3600


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what runs only with `--prove`."""
    is_alone = collection_path.name in _PROOFS_ALONE
    return True if is_alone and not config.getoption("--prove") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the timeout of proofs."""
    if not config.getoption("--prove"):
        return
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(_PROVE_TIMEOUT_S))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of all randomness in the test, printed when the test fails."""
    option: int | None = request.config.getoption("--seed")
    seed = secrets.randbelow(2**32) if option is None else option
    sys.stdout.write(f"--seed {seed}\n")
    return seed


@pytest.fixture
def rng(seed: int) -> random.Random:
    """The random generator of the test."""
    return random.Random(seed)


@pytest.fixture
def scale(request: pytest.FixtureRequest, seed: int) -> PromiseScale:
    """The size of the test, and the report of its figures."""
    config = request.config
    return PromiseScale(
        request.node.name,
        seed,
        is_proof=config.getoption("--prove"),
        rounds=config.getoption("--rounds"),
    )
