"""Keeps the tester's own environment and machine out of the tests."""

import os

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# What a developer has set for daily work must not steer a test, nor send its spans anywhere.
_STRAY_PREFIXES = ("TRUNKLINE_", "OTEL_", "LANGSMITH_", "LANGCHAIN_")
for _name in [name for name in os.environ if name.startswith(_STRAY_PREFIXES)]:
    del os.environ[_name]
# Child processes inherit it too: nothing may try the network.
os.environ["LANGSMITH_TRACING"] = "false"

# A busy machine makes an example slow, not wrong.
hypothesis_settings.register_profile(
    "trunkline", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("trunkline")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the promise tests; `make prove` gives --prove."""
    group = parser.getgroup("promises")
    group.addoption("--prove", action="store_true", help="run promise tests at full size")
    group.addoption("--seed", type=int, help="repeat a promise test with the seed it printed")
