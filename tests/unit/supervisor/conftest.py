"""A router over the cards of the bundled agents."""

import pytest

from harness.mesh.bundled_cards import shipped_cards
from trunkline.supervisor.router import Router


@pytest.fixture
def router() -> Router:
    return Router(shipped_cards())
