"""Join tokens: for whom, for how long, and how often."""

from datetime import timedelta
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from trunkline.core.identity import Identity, Role
from trunkline.core.identity.certificates import CertificateAuthority, create_key, create_root
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.tokens import create_token, read_token, redeem_token, verify_token
from trunkline.errors import ConfigurationError, UnauthenticatedError

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority(*create_root())


@pytest.fixture
def folder(tmp_path: Path) -> IdentityFolder:
    folder = IdentityFolder(tmp_path / "mesh")
    folder.create()
    return folder


def token_of(authority: CertificateAuthority, *, uses: int = 1, lifetime: timedelta = HOUR) -> str:
    return create_token(
        authority,
        Identity.for_agents(authority.mesh, ["math"]),
        mesh="mesh.example:50051",
        join_address="mesh.example:50053",
        lifetime=lifetime,
        uses=uses,
    )


def test_its_holder_learns_the_addresses_and_the_root(authority: CertificateAuthority) -> None:
    content = read_token(token_of(authority))
    assert (content.mesh, content.join_address) == ("mesh.example:50051", "mesh.example:50053")
    assert content.roots == authority.certificate_pem


def new_key() -> ec.EllipticCurvePublicKey:
    return create_key()[0]


def test_it_is_redeemed_as_often_as_it_says_also_after_a_restart(
    authority: CertificateAuthority, folder: IdentityFolder
) -> None:
    content = verify_token(authority, token_of(authority, uses=2))
    assert content.identity == Identity.for_agents(authority.mesh, ["math"])
    keys = [new_key(), new_key()]
    for key in keys:
        redeem_token(IdentityFolder(folder.path), content, key)
    with pytest.raises(UnauthenticatedError, match="used up"):
        redeem_token(IdentityFolder(folder.path), content, new_key())
    # The answer to the same request may have been lost.
    redeem_token(folder, content, keys[0])


def test_uses_that_can_not_be_counted_are_an_error(
    authority: CertificateAuthority, folder: IdentityFolder
) -> None:
    folder.used_tokens.write_text("[1, 2")
    with pytest.raises(ConfigurationError, match="remove it"):
        redeem_token(folder, verify_token(authority, token_of(authority)), new_key())


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
