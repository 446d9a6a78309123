"""Certificates for the servers and clients of tests: self-signed, or of an authority."""

import ssl
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def self_signed(folder: Path, host: str) -> tuple[ssl.SSLContext, Path]:
    """Return the TLS context of a server with this name, and the file by which clients trust it."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", *options.split(), *names, *files]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes
    serial: int

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write NAME.pem and NAME.key, each replaced as a whole; return them."""
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        for path, content in ((certificate, self.certificate), (key, self.key)):
            temporary = folder / f"{path.name}.new"
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
            temporary.replace(path)
        return certificate, key


class CertificateAuthority:
    """A root that issues certificates."""

    def __init__(self, name: str = "root") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        is_root = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._name, self._key).add_extension(is_root, critical=True)
        self.certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def issue(
        self, common_name: str = "", *, dns: str = "", uri: str = "", address: str = ""
    ) -> Issued:
        """Issue a certificate for a server or a client with these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        names: list[x509.GeneralName] = []
        if dns:
            names.append(x509.DNSName(dns))
        if uri:
            names.append(x509.UniformResourceIdentifier(uri))
        if address:
            names.append(x509.IPAddress(IPv4Address(address)))
        builder = self._builder(x509.Name(attributes), key)
        if names:
            alternatives = x509.SubjectAlternativeName(names)
            builder = builder.add_extension(alternatives, critical=not attributes)
        certificate = builder.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Issued(_pem(certificate), private, certificate.serial_number)

    def client_context(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this root; `client` is its certificate."""
        context = ssl.create_default_context(cadata=self.certificate.decode("ascii"))
        if client is not None:
            context.load_cert_chain(*client)
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
