"""Issues certificates with a mesh's root, and reads certificates in a folder."""

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from trunkline.errors import ConfigurationError
from trunkline.identity.credentials import MeshCredentials
from trunkline.identity.folder import IdentityFolder
from trunkline.identity.names import Identity, Role

if TYPE_CHECKING:
    from trunkline.identity.certificates import CertificateAuthority

logger = logging.getLogger(__name__)

LIFETIME: Final = timedelta(hours=24)
"""The lifetime of a process's certificate."""


def issue_member(folder: IdentityFolder) -> None:
    """Issue the certificate of this user's processes, unless another process just did.

    Raises:
        ConfigurationError: the root can't be used.
    """
    with folder.lock():
        current = try_open_folder(folder)
        if current is None or is_due(current):
            write_member(folder)


def write_member(folder: IdentityFolder) -> None:
    """Issue the certificate of this user's processes. The caller has locked the folder.

    Raises:
        ConfigurationError: the root can't be used.
    """
    from trunkline.identity.certificates import create_key

    authority = load_authority(folder)
    public_key, key = create_key()
    certificate = authority.issue(Identity(authority.mesh, Role.MEMBER), public_key, LIFETIME)
    folder.write(folder.certificate, certificate + key)


def is_due(credentials: MeshCredentials) -> bool:
    """Return True if a certificate should be renewed: a third of its lifetime has passed."""
    return credentials.ends_at - datetime.now(UTC) < LIFETIME * 2 / 3


def load_authority(folder: IdentityFolder) -> "CertificateAuthority":
    """Return the root of a mesh that this user runs.

    Raises:
        ConfigurationError: its files are missing or can't be used.
    """
    from trunkline.identity.certificates import CertificateAuthority

    try:
        return CertificateAuthority(folder.roots.read_bytes(), folder.root_key.read_bytes())
    except (OSError, ValueError) as error:
        problem = "its root can't be used; remove the folder, and all processes join again"
        raise ConfigurationError(f"identity folder {folder.path}", problem) from error


def try_open_folder(folder: IdentityFolder) -> MeshCredentials | None:
    """Return the credentials in a folder, or None if they are missing or not valid now."""
    if not folder.certificate.exists():
        return None
    try:
        return open_folder(folder)
    except ConfigurationError as error:
        extra = {"file": error.where, "problem": error.problem}
        logger.warning("identity.certificate_not_valid", extra=extra)
        return None


def open_folder(folder: IdentityFolder) -> MeshCredentials:
    """Return the credentials in a folder.

    Raises:
        ConfigurationError: they are not valid now.
    """
    return MeshCredentials(
        certificate=folder.certificate,
        key=folder.certificate,
        roots=folder.roots,
        is_issued_by_mesh=True,
    )
