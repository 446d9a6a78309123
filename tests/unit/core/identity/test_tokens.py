"""Join tokens: for whom and for how long."""

from datetime import timedelta

import jwt
import pytest

from trunkline.core.identity import Identity, Role
from trunkline.core.identity.certificates import CertificateAuthority, create_root
from trunkline.core.identity.tokens import create_token, read_token, verify_token
from trunkline.errors import ConfigurationError, UnauthenticatedError

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority(*create_root())


def token_of(authority: CertificateAuthority, *, uses: int = 1, lifetime: timedelta = HOUR) -> str:
    return create_token(
        authority,
        Identity.for_agents(authority.mesh, ["math"]),
        mesh="mesh.example:50051",
        join_addresses=["mesh.example:50053", "other.example:50053"],
        lifetime=lifetime,
        uses=uses,
    )


def test_its_holder_learns_the_addresses_and_the_root(authority: CertificateAuthority) -> None:
    content = read_token(token_of(authority))
    assert content.mesh == "mesh.example:50051"
    assert content.join_addresses == ("mesh.example:50053", "other.example:50053")
    assert content.roots == authority.certificate_pem


def test_its_registry_learns_the_identity_and_the_number_of_uses(
    authority: CertificateAuthority,
) -> None:
    token = verify_token(authority, token_of(authority, uses=2))
    assert token.identity == Identity.for_agents(authority.mesh, ["math"])
    assert token.uses == 2


def test_tokens_of_another_mesh_expired_ones_and_other_jwts_are_refused(
    authority: CertificateAuthority,
) -> None:
    other = CertificateAuthority(*create_root())
    claims = jwt.decode(token_of(authority), options={"verify_signature": False})
    forged = {
        "another mesh": token_of(other),
        "expired": token_of(authority, lifetime=timedelta(seconds=-1)),
        "another type": jwt.encode(claims, authority.key, algorithm="ES256"),
        "another identity": jwt.encode(
            {**claims, "sub": str(Identity(authority.mesh, Role.MEMBER))},
            other.key,
            algorithm="ES256",
            headers={"typ": "trunkline-join+jwt"},
        ),
        "no signature": jwt.encode(claims, "", algorithm="none"),
        "too long": token_of(authority) + "a" * 20_000,
        "nothing": "",
    }
    for token in forged.values():
        with pytest.raises(UnauthenticatedError, match="not valid here"):
            verify_token(authority, token)


@pytest.mark.parametrize("text", ["", "hello", "a.b.c", "é" * 100, "a" * 20_000])
def test_a_text_that_is_no_token_is_a_clear_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="copy all of it"):
        read_token(text)
