"""A router over the cards of the bundled agents."""

import pytest

from harness.mesh.bundled_cards import shipped_cards
from trunkline.supervisor.router import Router


# It keeps nothing of what it routed, and takes a tenth of a second to make.
@pytest.fixture(scope="session")
def router() -> Router:
    return Router(shipped_cards())
