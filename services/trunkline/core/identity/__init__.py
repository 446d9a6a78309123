"""Identities of processes on a mesh: certificates that its own root issues."""

from trunkline.core.identity.credentials import MeshCredentials
from trunkline.core.identity.issuing import LIFETIME
from trunkline.core.identity.join_records import JoinRecords, RevocationList
from trunkline.core.identity.lifecycle import (
    identity_folder,
    load_credentials,
    open_credentials,
    temporary_identity,
)
from trunkline.core.identity.names import MESH_NAME, Identity, Role
from trunkline.core.identity.statements import StatementSigner, StatementVerifier, has_ended

__all__ = [
    "LIFETIME",
    "MESH_NAME",
    "Identity",
    "JoinRecords",
    "MeshCredentials",
    "RevocationList",
    "Role",
    "StatementSigner",
    "StatementVerifier",
    "has_ended",
    "identity_folder",
    "load_credentials",
    "open_credentials",
    "temporary_identity",
]
