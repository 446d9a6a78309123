"""The certificate of this bridge, from files that are read again when they change.

Each TLS handshake checks the files, at most once a second, so the next connection gets a renewed
certificate and open connections stay open. Nothing runs between handshakes.
"""

import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Self, cast

import grpc

from trunkline.core.private_files import read_file_version, read_private_file
from trunkline.core.settings import TlsSettings
from trunkline.errors import ConfigurationError

logger = logging.getLogger(__name__)

RELOAD_INTERVAL_S = 1.0
"""The minimum interval between two checks for changed files."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a certificate."""

    certificate: Path
    """The certificate and those between it and the root, in PEM."""
    key: Path
    client_roots: Path | None
    """The roots of clients' certificates, in PEM. With None, no certificates are requested."""
    requires_client: bool

    @classmethod
    def from_settings(cls, settings: TlsSettings) -> Self | None:
        """Return the files that the settings name, or None if TLS is off.

        Raises:
            ConfigurationError: a file that the other files need is missing.
        """
        certificate, key = settings.certificate, settings.key
        if certificate is None or key is None:
            if certificate or key or settings.client_roots or settings.require_client_certificate:
                raise ConfigurationError("tls", "set certificate and key, both are needed")
            return None
        if settings.require_client_certificate and settings.client_roots is None:
            problem = "set client_roots, which verify the certificates that are required"
            raise ConfigurationError("tls.require_client_certificate", problem)
        return cls(certificate, key, settings.client_roots, settings.require_client_certificate)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The content of the files."""

    version: int
    context: ssl.SSLContext
    for_grpc: grpc.ServerCertificateConfiguration


class ServerCertificate:
    """The certificate and the roots of clients, for servers of HTTP and of gRPC.

    If the changed files are unusable, the problem is logged once, and the old content is used.
    """

    def __init__(self, files: CertificateFiles, now: Callable[[], float] = monotonic) -> None:
        """Load the files.

        Raises:
            ConfigurationError: a file can't be read, other users may change it or read the key, or
                the key is not the certificate's.
        """
        self._files = files
        self._now = now
        # gRPC calls it from other threads.
        self._lock = threading.Lock()
        self._checked_at = now()
        self._stamps = self._read_stamps()
        self._loaded = self._load(version=1)
        # A handshake starts with this context. The callback replaces it by the current one.
        self.ssl_context = self._loaded.context
        """The context of the HTTP server."""
        self.ssl_context.sni_callback = self._choose_context

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC server.

        They request a client's certificate only if it is required, because gRPC's Python library
        has no optional one.
        """
        served = self._current()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal served
            current = self._current()
            if current.version == served.version:
                return None
            served = current
            return current.for_grpc

        # The stub does not allow None, which means that nothing has changed.
        fetcher = cast("Callable[[], grpc.ServerCertificateConfiguration]", fetch)
        return grpc.dynamic_ssl_server_credentials(
            served.for_grpc,
            fetcher,
            require_client_authentication=self._files.requires_client,
        )

    def _choose_context(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._current().context

    def _current(self) -> _Loaded:
        with self._lock:
            now = self._now()
            if now - self._checked_at >= RELOAD_INTERVAL_S:
                self._checked_at = now
                self._reload_if_changed()
            return self._loaded

    def _reload_if_changed(self) -> None:
        # Before the files are read: a later change is seen by the next check.
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        file = str(self._files.certificate)
        try:
            self._loaded = self._load(version=self._loaded.version + 1)
        except ConfigurationError as error:
            problem = f"{error}; the old certificate stays in use"
            logger.error("tls.unusable", extra={"file": file, "problem": problem})
        else:
            logger.info("tls.renewed", extra={"file": file})

    def _read_stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        files = self._files
        paths = (files.certificate, files.key, files.client_roots)
        return tuple(read_file_version(path) for path in paths if path)

    def _load(self, *, version: int) -> _Loaded:
        files = self._files
        certificate = _read_file(files.certificate, is_secret=files.certificate == files.key)
        key = _read_file(files.key, is_secret=True)
        roots = _read_file(files.client_roots, is_secret=False) if files.client_roots else None
        configuration = grpc.ssl_server_certificate_configuration([(key, certificate)], roots)
        return _Loaded(version, _build_context(files, roots), configuration)


def _build_context(files: CertificateFiles, roots: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError) as error:
        problem = (
            f"can't be used with the key {files.key}: {error}; it needs the unencrypted key of the "
            "first certificate, both in PEM"
        )
        raise ConfigurationError(str(files.certificate), problem) from error
    if roots is not None:
        try:
            context.load_verify_locations(cadata=roots.decode("ascii"))
        except (OSError, ValueError) as error:
            problem = f"has no certificates in PEM: {error}"
            raise ConfigurationError(str(files.client_roots), problem) from error
        context.verify_mode = ssl.CERT_REQUIRED if files.requires_client else ssl.CERT_OPTIONAL
        # A resumed session has no handshake that checks the certificate by the current roots.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def _read_file(path: Path, *, is_secret: bool) -> bytes:
    try:
        return read_private_file(path, is_secret=is_secret)
    except OSError as error:
        raise ConfigurationError(str(path), f"can't be read: {error.strerror}") from error
