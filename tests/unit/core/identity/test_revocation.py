"""A revoked process stays out for as long as it could still be let in."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trunkline.core.identity import Identity
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.revocation import (
    RevocationList,
    list_joined,
    record_certificate,
    revoke,
)
from trunkline.errors import UnauthenticatedError

MATH = replace(Identity.for_agents("mesh-1", ["math"]), instance="0123")
OTHER = replace(Identity.for_agents("mesh-1", ["other"]), instance="4567")
HOUR_S = 3600.0


@pytest.fixture
def folder(tmp_path: Path) -> IdentityFolder:
    folder = IdentityFolder(tmp_path / "mesh")
    folder.create()
    return folder


def age(folder: IdentityFolder, by_s: float) -> None:
    """Move the ends of all certificates into the past."""
    entries = json.loads(folder.joined.read_bytes())
    folder.write(
        folder.joined,
        json.dumps([entry | {"ends_at": entry["ends_at"] - by_s} for entry in entries]).encode(),
    )


def revoked_in(folder: IdentityFolder) -> frozenset[str]:
    return RevocationList(folder, lambda _: None).refresh()


@pytest.mark.parametrize("is_revoked_late", [False, True])
def test_a_revocation_outlives_the_certificate(
    folder: IdentityFolder, is_revoked_late: bool
) -> None:
    # Connections that are older than its end, and statements signed before, are valid for a day.
    record_certificate(folder, MATH, lifetime_s=HOUR_S)
    if not is_revoked_late:
        revoke(folder, ["agents/math"])
    age(folder, by_s=24 * HOUR_S)
    if is_revoked_late:
        revoke(folder, ["agents/math"])
    record_certificate(folder, OTHER, lifetime_s=HOUR_S)
    assert revoked_in(folder) == {MATH.instance}
    assert [process.instance for process in list_joined(folder)] == [OTHER.instance]
    with pytest.raises(UnauthenticatedError, match="revoked"):
        record_certificate(folder, MATH, lifetime_s=HOUR_S)
    age(folder, by_s=48 * HOUR_S)
    record_certificate(folder, OTHER, lifetime_s=HOUR_S)
    assert revoked_in(folder) == frozenset()


def test_one_key_can_not_join_for_other_agents(folder: IdentityFolder) -> None:
    # Otherwise the list would name it by the agents of its first token alone.
    record_certificate(folder, MATH, lifetime_s=HOUR_S)
    with pytest.raises(UnauthenticatedError, match="agents/math"):
        record_certificate(folder, replace(OTHER, instance=MATH.instance), lifetime_s=HOUR_S)
