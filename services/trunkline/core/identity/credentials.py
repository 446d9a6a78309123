"""The credentials of a process on its mesh: TLS for its servers and channels, re-read on change."""

import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import grpc

from trunkline.core.identity.names import MESH_NAME, Identity
from trunkline.core.private_files import FileVersion, read_file_version, read_private_file
from trunkline.errors import ConfigurationError

logger = logging.getLogger(__name__)

# Changed files are used after this time.
_CHECK_S: Final = 1.0
# A certificate and its key may be replaced between two reads.
_READS: Final = 3
# TLS 1.3 takes two of them.
_HANDSHAKE_STEPS: Final = 4


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The content of a certificate that is valid now."""

    uri: str
    """Its SPIFFE id."""
    ends_at: datetime
    """The time at which it ends."""


@dataclass(frozen=True, slots=True)
class _Pem:
    # A file may hold both.
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    roots: bytes
    facts: CertificateFacts


class MeshCredentials:
    """A certificate, its key and the roots of a mesh, from files that may change at any time.

    A changed file is used within a second, for new connections. Open ones stay as they are. Files
    that can't be used are logged, and the ones before stay in use. Safe to use from any thread.
    """

    def __init__(
        self,
        *,
        certificate: Path,
        key: Path,
        roots: Path,
        is_issued_by_mesh: bool = False,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        """Read the files. Certificates that the mesh issues have a DNS name for each identity.

        `roles` has the roles of SPIFFE ids that the mesh did not issue, such as `agents/math`.

        Raises:
            ConfigurationError: a file can't be read, or the certificate is not valid.
        """
        self._is_issued_by_mesh = is_issued_by_mesh
        self._roles = dict(roles or {})
        self.certificate_file: Path = certificate
        self.roots_file: Path = roots
        self._files = (certificate, key, roots)
        self._lock = threading.Lock()
        self._versions = self._read_versions()
        self._pem = self._read()
        self._generation = 1
        self._check_at = time.monotonic() + _CHECK_S
        self._channel_credentials: tuple[int, grpc.ChannelCredentials] | None = None
        self.revoked: frozenset[str] = frozenset()
        """The instances of identities that are no longer accepted."""
        self.on_revoked: set[Callable[[], None]] = set()
        """Called whenever further instances are revoked."""

    @property
    def generation(self) -> int:
        """The number of the files' current state. It increases when they change."""
        if time.monotonic() >= self._check_at:
            self._reload()
        return self._generation

    @property
    def identity(self) -> Identity:
        """The identity of this process."""
        return self.identify(self._pem.facts.uri)

    @property
    def ends_at(self) -> datetime:
        """The time at which the certificate ends."""
        # Reads changed files.
        _ = self.generation
        return self._pem.facts.ends_at

    def identify(self, uri: str) -> Identity:
        """Return the identity in a certificate of this mesh, by its SPIFFE id.

        Raises:
            ValueError: it has no role.
        """
        subject = self._roles.get(uri)
        if subject is None:
            return Identity.parse(uri)
        mesh = uri.removeprefix("spiffe://").partition("/")[0]
        return Identity.from_subject(mesh, subject)

    def revoke(self, instances: Iterable[str]) -> None:
        """Replace the instances that are no longer accepted."""
        revoked = frozenset(instances)
        is_extended = not revoked <= self.revoked
        self.revoked = revoked
        if is_extended:
            for callback in tuple(self.on_revoked):
                callback()

    def read_pem(self) -> tuple[bytes, bytes]:
        """Return the current certificate, with its chain, and its key."""
        # Reads changed files.
        _ = self.generation
        return self._pem.certificate, self._pem.key

    def read_roots(self) -> bytes:
        """Return the roots of the mesh, PEM."""
        _ = self.generation
        return self._pem.roots

    def server_name(self, peer: str) -> str:
        """Return the DNS name to expect of a server; `peer` is its SPIFFE id, "" for a member."""
        # Certificates that the mesh did not issue have one name for all servers.
        return Identity.parse(peer).server_name if peer and self._is_issued_by_mesh else MESH_NAME

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the current credentials for new channels."""
        generation = self.generation
        cached = self._channel_credentials
        if cached is None or cached[0] != generation:
            pem = self._pem
            credentials = grpc.ssl_channel_credentials(pem.roots, pem.key, pem.certificate)
            self._channel_credentials = cached = (generation, credentials)
        return cached[1]

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that accept only clients of the mesh, and follow the files."""
        return self._dynamic_credentials(requires_client=True)

    def public_server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that accept clients without a certificate, and follow the files."""
        return self._dynamic_credentials(requires_client=False)

    def _dynamic_credentials(self, *, requires_client: bool) -> grpc.ServerCredentials:
        served = self.generation

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            # grpc calls this in another thread before each handshake.
            nonlocal served
            generation = self.generation
            if generation == served:
                return None
            served = generation
            return self._server_configuration()

        # The stub does not allow None, which means that nothing has changed.
        fetcher = cast("Callable[[], grpc.ServerCertificateConfiguration]", fetch)
        return grpc.dynamic_ssl_server_credentials(
            self._server_configuration(), fetcher, require_client_authentication=requires_client
        )

    def _server_configuration(self) -> grpc.ServerCertificateConfiguration:
        pem = self._pem
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.roots)

    def refresh(self) -> None:
        """Read changed files now, and not within a second."""
        self._reload(is_forced=True)

    def _reload(self, *, is_forced: bool = False) -> None:
        with self._lock:
            if not is_forced and time.monotonic() < self._check_at:
                return
            self._check_at = time.monotonic() + _CHECK_S
            versions = self._read_versions()
            if versions == self._versions:
                return
            self._versions = versions
            try:
                self._pem = self._read()
            except ConfigurationError as error:
                extra = {"file": error.where, "problem": error.problem}
                logger.error("identity.files_not_usable", extra=extra)
                return
            self._generation += 1
            logger.info("identity.renewed", extra={"file": str(self._files[0])})

    def _read_versions(self) -> list[FileVersion | None]:
        return [read_file_version(file) for file in self._files]

    def _read(self) -> _Pem:
        """Read the files, again if they change meanwhile.

        Raises:
            ConfigurationError: a file can't be read or used.
        """
        for _ in range(_READS):
            versions = self._read_versions()
            try:
                pem = self._read_once()
                self.identify(pem.facts.uri)
            except ConfigurationError:
                if versions == self._read_versions():
                    raise
            except ValueError as error:
                problem = f"{pem.facts.uri} is no identity of a mesh; set its role: {error}"
                raise ConfigurationError(str(self.certificate_file), problem) from error
            else:
                if versions == self._read_versions():
                    return pem
        raise ConfigurationError(str(self.certificate_file), "changes all the time")

    def _read_once(self) -> _Pem:
        certificate, key, roots = self._files
        # The certificate of our own is in the key's file.
        is_one_file = certificate == key
        return _Pem(
            certificate=_read_file(certificate, is_secret=is_one_file),
            key=_read_file(key, is_secret=True),
            roots=_read_file(roots, is_secret=False),
            facts=inspect_certificate(certificate, key, roots),
        )


def inspect_certificate(certificate: Path, key: Path, roots: Path) -> CertificateFacts:
    """Return the content of a certificate that is valid, by a TLS handshake in memory.

    The standard library has no other parser, and cryptography takes a fifth of a second to load.

    Raises:
        ConfigurationError: a file can't be read, the key is not the certificate's, or no root has
            signed it, or it has ended.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        for context in (server, client):
            context.load_cert_chain(certificate, key)
            context.load_verify_locations(roots)
        # Only the client's certificate is checked: a bridge's is for nothing else.
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
        server.verify_mode = ssl.CERT_REQUIRED
        content = _shake_hands(server, client)
        (uri,) = (value for kind, value in content["subjectAltName"] if kind == "URI")
        ends_at = datetime.fromtimestamp(ssl.cert_time_to_seconds(content["notAfter"]), UTC)
        return CertificateFacts(uri, ends_at)
    except (OSError, ValueError, KeyError) as error:
        # ssl.SSLError is an OSError.
        problem = f"can't be used: {error}"
        raise ConfigurationError(str(certificate), problem) from error


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Connect two contexts in memory; return the client's certificate as the server sees it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    # Each end writes its part, and then needs the other's.
    for _ in range(_HANDSHAKE_STEPS):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    content: dict[str, Any] = ends[1].getpeercert() or {}
    return content


def _read_file(file: Path, *, is_secret: bool) -> bytes:
    try:
        return read_private_file(file, is_secret=is_secret)
    except OSError as error:
        problem = f"can't be read: {error.strerror}"
        raise ConfigurationError(str(file), problem) from error
