"""Statements of users: signed by bridges and members, and refused in every other form."""

import base64
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from harness.mesh.identity import mesh_credentials
from harness.mesh.other_identities import issue, mesh_authority, other_authority
from trunkline.core.identity import (
    Identity,
    MeshCredentials,
    Role,
    StatementSigner,
    StatementVerifier,
    statements,
)
from trunkline.core.identity.certificates import create_key
from trunkline.core.identity.statement_tokens import LIFETIME_S, sign_statement, verify_statement
from trunkline.core.users import User
from trunkline.errors import UserNotProvenError

ALICE = User("acme", "alice")


def sign_claims(credentials: MeshCredentials, **changes: Any) -> str:
    """Return a statement with other claims than ours, properly signed."""
    certificate_pem, key_pem = credentials.read_pem()
    identity, now = credentials.identity, int(datetime.now(UTC).timestamp())
    claims = {
        "iss": str(identity),
        "aud": identity.mesh,
        "sub": "alice",
        "account": "acme",
        "iat": now,
        "exp": now + 60,
    }
    der = x509.load_pem_x509_certificate(certificate_pem).public_bytes(serialization.Encoding.DER)
    headers = {"typ": "trunkline-user+jwt", "x5c": [base64.b64encode(der).decode()]}
    headers |= {name: value for name, value in changes.items() if name in headers}
    claims |= {name: value for name, value in changes.items() if name not in headers}
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key_pem, algorithm="ES256", headers=headers)


def verify(statement: str) -> User:
    credentials = mesh_credentials()
    mesh, roots = credentials.identity.mesh, credentials.read_roots()
    identify = credentials.identify
    return verify_statement(statement, mesh=mesh, roots_pem=roots, identify=identify)[0]


@pytest.mark.parametrize("role", [Role.MEMBER, Role.BRIDGE])
async def test_a_bridge_and_a_member_speak_for_users(role: Role, tmp_path: Path) -> None:
    signer = StatementSigner(issue(tmp_path, role=role))
    assert signer.may_sign
    user = User("acme", "alice", is_read_only=True, approved=frozenset({"a digest"}))
    statement = await signer.sign(user)
    verifier = StatementVerifier(mesh_credentials())
    assert await verifier.verify(statement) == replace(user, statement=statement)
    assert verifier.find(statement) is await verifier.verify(statement)


async def test_the_bytes_stay_the_same_for_a_user() -> None:
    signer = StatementSigner(mesh_credentials())
    statement = await signer.sign(ALICE)
    assert await signer.sign(User("acme", "alice")) == statement
    assert await signer.sign(User("acme", "bob")) != statement
    approving = User("acme", "alice", approved=frozenset({"a digest"}))
    assert await signer.sign(approving) != statement


async def test_a_statement_of_a_clock_that_was_ahead_is_signed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others would refuse the first one until its time has come."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Ahead":
            return cls.fromtimestamp(datetime.now(tz).timestamp() + 2 * 86_400, tz)

    signer = StatementSigner(mesh_credentials())
    with monkeypatch.context() as jump:
        jump.setattr(statements, "datetime", Ahead)
        early = await signer.sign(ALICE)
    assert await signer.sign(ALICE) != early


def test_a_statement_outlives_the_certificate_that_signed_it() -> None:
    authority = mesh_authority()
    public_key, key = create_key()
    bridge = Identity(authority.mesh, Role.BRIDGE)
    certificate = authority.issue(bridge, public_key, timedelta(seconds=-60))
    signed_at = int(datetime.now(UTC).timestamp()) - 120
    statement = sign_statement(ALICE, certificate_pem=certificate, key_pem=key, issued_at=signed_at)
    assert verify(statement).account == "acme"


@dataclass(frozen=True)
class Case:
    """Changed claims, and the reason for the refusal."""

    name: str
    changes: dict[str, Any]
    problem: str


# Times are seconds from now.
CASES = (
    Case("expired", {"iat": -1000, "exp": -600}, "expired"),
    Case("from the future", {"iat": 3600, "exp": 7200}, "not yet valid"),
    Case("too long", {"exp": LIFETIME_S + 3600}, "too long"),
    Case("signed after the certificate", {"iat": -86000, "exp": 300}, "no root"),
    Case("another mesh", {"aud": "mesh-other"}, "audience"),
    Case("another signer", {"iss": "spiffe://mesh-other/bridge"}, "another mesh"),
    Case("another purpose", {"typ": "JWT"}, "another purpose"),
    Case("no chain", {"x5c": []}, "no chain"),
    Case("no account", {"account": None}, "account"),
    Case("no end", {"exp": None}, "exp"),
    Case("account of another type", {"account": ["acme"]}, "another type"),
    Case("empty account", {"account": ""}, "another type"),
    Case("time of another type", {"exp": 60.5}, "whole numbers"),
    Case("unknown scope", {"scope": "agents:math"}, "unknown scope"),
    Case("scope of another type", {"scope": ["read"]}, "unknown scope"),
    Case("digests of another type", {"approved": [1]}, "another type"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_statement_in_another_form_is_refused(case: Case, tmp_path: Path) -> None:
    bridge = issue(tmp_path, role=Role.BRIDGE)
    assert verify(sign_claims(bridge)).account == "acme"
    now = int(datetime.now(UTC).timestamp())
    times = {name: now + case.changes[name] for name in ("iat", "exp") if case.changes.get(name)}
    with pytest.raises(ValueError, match=case.problem):
        verify(sign_claims(bridge, **case.changes | times))


@pytest.mark.parametrize("role", [Role.AGENTS, Role.TOOLS])
async def test_agents_and_tools_speak_for_nobody(role: Role, tmp_path: Path) -> None:
    agents = ["math"] if role is Role.AGENTS else []
    credentials = issue(tmp_path, role=role, agents=agents)
    assert not StatementSigner(credentials).may_sign
    with pytest.raises(UserNotProvenError, match="neither a bridge nor a member"):
        await StatementVerifier(mesh_credentials()).verify(sign_claims(credentials))


def test_another_root_can_not_sign(tmp_path: Path) -> None:
    foreign = issue(tmp_path, role=Role.BRIDGE, authority=other_authority())
    mesh = mesh_credentials().identity.mesh
    with pytest.raises(ValueError, match="another mesh"):
        verify(sign_claims(foreign, aud=mesh))


def test_a_changed_account_breaks_the_signature(tmp_path: Path) -> None:
    header, claims, signature = sign_claims(issue(tmp_path, role=Role.BRIDGE)).split(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=="))
    content["account"] = "victim"
    forged = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
    with pytest.raises(ValueError, match="signature"):
        verify(f"{header}.{forged}.{signature}")


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_a_weaker_algorithm_is_refused(algorithm: str, tmp_path: Path) -> None:
    bridge = issue(tmp_path, role=Role.BRIDGE)
    header = jwt.get_unverified_header(sign_claims(bridge))
    claims = jwt.decode(sign_claims(bridge), options={"verify_signature": False})
    key = "" if algorithm == "none" else "a secret of at least thirty-two bytes"
    forged = jwt.encode(
        claims, key, algorithm=algorithm, headers={name: header[name] for name in ("typ", "x5c")}
    )
    with pytest.raises(ValueError, match="alg"):
        verify(forged)


async def test_a_revoked_bridge_speaks_for_nobody(tmp_path: Path) -> None:
    authority = mesh_authority()
    public_key, key = create_key()
    bridge = replace(Identity(authority.mesh, Role.BRIDGE), instance="i-1")
    certificate = authority.issue(bridge, public_key, timedelta(hours=1))
    now = int(datetime.now(UTC).timestamp())
    statement = sign_statement(ALICE, certificate_pem=certificate, key_pem=key, issued_at=now)
    credentials = issue(tmp_path, role=Role.MEMBER)
    verifier = StatementVerifier(credentials)
    assert (await verifier.verify(statement)).account == "acme"
    credentials.revoke({"i-1"})
    with pytest.raises(UserNotProvenError, match="revoked"):
        await verifier.verify(statement)
