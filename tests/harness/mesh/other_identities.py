"""Identities beside the members': processes that joined, processes of other meshes, and none."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from harness.mesh.identity import mesh_credentials
from trunkline.core.identity import MESH_NAME, Identity, MeshCredentials, Role
from trunkline.core.identity.certificates import CertificateAuthority, create_key, create_root
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.private_files import write_private_file

NAME_OPTION = (("grpc.ssl_target_name_override", MESH_NAME),)


Stranger: TypeAlias = tuple[bytes, ...] | None
"""The roots, and perhaps the key and the certificate of a process, all PEM; None: no TLS."""


def mesh_authority() -> CertificateAuthority:
    """Return the root of the meshes of this test run."""
    return authority_in(IdentityFolder(mesh_credentials().roots_file.parent))


def authority_in(folder: IdentityFolder) -> CertificateAuthority:
    """Return the root in a folder."""
    return CertificateAuthority(folder.roots.read_bytes(), folder.root_key.read_bytes())


def issue(
    folder: Path,
    *,
    role: Role = Role.AGENTS,
    agents: Sequence[str] = (),
    instance: str = "",
    authority: CertificateAuthority | None = None,
    lifetime: timedelta = timedelta(hours=1),
) -> MeshCredentials:
    """Write the certificate of another process to a folder; return its credentials."""
    authority = authority or mesh_authority()
    identity = Identity(authority.mesh, role, frozenset(agents), instance)
    certificate, roots = folder / "certificate.pem", folder / "roots.pem"
    write_private_file(certificate, b"".join(_issue(authority, identity, lifetime)))
    write_private_file(roots, authority.certificate_pem)
    return MeshCredentials(
        certificate=certificate, key=certificate, roots=roots, is_issued_by_mesh=True
    )


def _issue(
    authority: CertificateAuthority, identity: Identity, lifetime: timedelta
) -> tuple[bytes, bytes]:
    """Return a certificate and its key, PEM."""
    public_key, key = create_key()
    return authority.issue(identity, public_key, lifetime), key


def other_authority() -> CertificateAuthority:
    """Return the root of another mesh."""
    return CertificateAuthority(*create_root())


def strangers(own: CertificateAuthority) -> dict[str, Stranger]:
    """Return the credentials of processes that are not on the mesh of a root."""
    other = other_authority()
    certificate, key = _issue(other, Identity(other.mesh, Role.MEMBER), timedelta(1))
    ended, ended_key = _issue(own, Identity(own.mesh, Role.MEMBER), timedelta(seconds=-60))
    return {
        "plaintext": None,
        "no certificate": (own.certificate_pem,),
        "another mesh": (other.certificate_pem, key, certificate),
        "a certificate of another mesh": (own.certificate_pem, key, certificate),
        "an expired certificate": (own.certificate_pem, ended_key, ended),
    }
