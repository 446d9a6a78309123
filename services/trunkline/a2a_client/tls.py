"""TLS of the client: trusted certificates and its own, for HTTP and for gRPC."""

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.errors import ConfigurationError

if TYPE_CHECKING:
    import grpc

_CONNECT_TIMEOUT_S: Final = 5.0


class ChannelSecurity(NamedTuple):
    """The credentials of a gRPC channel, and the name that the server's certificate must have."""

    credentials: "grpc.ChannelCredentials"
    server_name: str = ""
    """If empty, the host of the address is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """Settings of the client's TLS."""

    is_verified: bool = True
    """The server's certificate must be trusted. Otherwise anyone may read along."""
    authority: Path | None = None
    """A file of root certificates in PEM. With None, the system's certificates are used."""
    certificate: Path | None = None
    """The client's certificate in PEM, for mutual TLS."""
    key: Path | None = None
    """The key of the certificate in PEM. With None, it is in the certificate's file."""

    def ssl_context(self) -> ssl.SSLContext:
        """Return the context for HTTPS. ConfigurationError: a file can't be used."""
        try:
            context = ssl.create_default_context(cafile=self.authority)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            raise self._file_error(error) from error
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def channel_security(self, address: str) -> ChannelSecurity:
        """Return the credentials for gRPC at `host:port`. It blocks.

        gRPC always verifies certificates. Without verification, the certificate that the server
        presents now is trusted.

        Raises:
            ConfigurationError: a file can't be used.
            OSError: the server's certificate can't be read.
        """
        import grpc

        roots = self._read(self.authority)
        name = ""
        if not self.is_verified:
            roots, name = _read_server_certificate(address)
        chain = self._read(self.certificate)
        key = self._read(self.key) or chain
        return ChannelSecurity(grpc.ssl_channel_credentials(roots, key, chain), name)

    def _read(self, path: Path | None) -> bytes | None:
        try:
            return None if path is None else path.read_bytes()
        except OSError as error:
            raise self._file_error(error) from error

    def _file_error(self, error: OSError) -> ConfigurationError:
        files = [str(path) for path in (self.authority, self.certificate, self.key) if path]
        problem = f"can't be used for TLS: {error.strerror or error}"
        return ConfigurationError(", ".join(files) or "TLS", problem)


def _read_server_certificate(address: str) -> tuple[bytes, str]:
    """Return the certificate of a server in PEM, and a name that it is valid for."""
    from cryptography import x509

    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host.strip("[]")) as secured,
    ):
        content = secured.getpeercert(binary_form=True) or b""
    certificate = x509.load_der_x509_certificate(content)
    names: list[str] = []
    try:
        alternatives = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
        names += alternatives.get_values_for_type(x509.DNSName)
        names += map(str, alternatives.get_values_for_type(x509.IPAddress))
    except x509.ExtensionNotFound:
        pass
    return ssl.DER_cert_to_PEM_cert(content).encode(), names[0] if names else ""
