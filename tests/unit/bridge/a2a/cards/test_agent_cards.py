"""Cards contain addresses that their reader can reach."""

from dataclasses import replace
from pathlib import Path

import pytest

from trunkline.errors import ConfigurationError
from trunkline.mesh.bridge import check_addresses
from trunkline.settings import AgentSettings, HostPort, Settings
from trunkline_bridge.http.bound_addresses import BoundAddresses


@pytest.mark.parametrize(
    ("bound", "base_url", "advertised"),
    [
        ("", "http://127.0.0.1:8000", ""),
        ("127.0.0.1:50052", "http://127.0.0.1:8000", "127.0.0.1:50052"),
        ("127.0.0.1:50052", "http://localhost:8000", "127.0.0.1:50052"),
        ("127.0.0.1:50052", "http://[::1]:8000", "127.0.0.1:50052"),
        ("127.0.0.1:50052", "https://mesh.example", ""),
        ("0.0.0.0:50052", "https://mesh.example/a2a", "mesh.example:50052"),
        ("[::]:50052", "http://[2001:db8::1]:8000", "[2001:db8::1]:50052"),
        ("grpc.example:443", "https://mesh.example", "grpc.example:443"),
    ],
)
def test_the_grpc_address_is_reachable_for_the_caller(
    bound: str, base_url: str, advertised: str
) -> None:
    assert BoundAddresses(grpc=bound).grpc_address_for(base_url) == advertised


def test_an_agents_own_address_is_checked_like_that_of_all_agents() -> None:
    own = AgentSettings(a2a_grpc=HostPort("::", 50061))
    exposed = Settings(agent_options={"math": own})
    with pytest.raises(ConfigurationError, match=r"\[::\]:50061 can be reached"):
        check_addresses(exposed)
    check_addresses(replace(exposed, insecure=True))
    addresses = BoundAddresses(grpc="127.0.0.1:50052", agent_grpc={"math": "0.0.0.0:50061"})
    assert addresses.grpc_address_for("http://h.example", agent="math") == "h.example:50061"
    assert addresses.grpc_address_for("http://localhost", agent="echo") == ""


def test_a_signed_card_needs_a_single_address() -> None:
    settings = Settings(card_key=Path("card.pem"), insecure=True)
    check_addresses(settings)
    everywhere = replace(settings, http=HostPort("::", 80))
    with pytest.raises(ConfigurationError, match="public_url"):
        check_addresses(everywhere)
    check_addresses(replace(everywhere, public_url="https://mesh.example"))


def test_pages_of_all_origins_may_call_only_with_credentials(tmp_path: Path) -> None:
    anybody = Settings(allowed_origins=("*",))
    with pytest.raises(ConfigurationError, match="allowed_origins: any page could"):
        check_addresses(anybody)
    check_addresses(replace(anybody, api_keys_file=tmp_path / "keys"))
