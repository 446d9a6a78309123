"""Issues a mesh's root and the certificates of its processes (X.509, RFC 5280; SPIFFE X509-SVID).

It imports cryptography, which takes a fifth of a second: load it where a certificate is issued.
"""

import ipaddress
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trunkline.identity.names import Identity, Role

_ROOT_LIFETIME: Final = timedelta(days=3650)
# Clocks of machines differ.
_TOLERANCE: Final = timedelta(minutes=5)
# MCP servers verify their local collector by these names.
_LOCAL_NAMES: Final[Sequence[x509.GeneralName]] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


class CertificateAuthority:
    """The root of a mesh, with its key."""

    def __init__(self, certificate_pem: bytes, key_pem: bytes) -> None:
        """Load the root that has the key.

        `certificate_pem` may hold further roots, which are trusted.

        Raises:
            ValueError: the certificate or the key is malformed, or they don't belong together.
        """
        key = serialization.load_pem_private_key(key_pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the root's key is not an elliptic curve key")
        roots = x509.load_pem_x509_certificates(certificate_pem)
        own = [root for root in roots if root.public_key() == key.public_key()]
        if not own:
            raise ValueError("the root's key belongs to another certificate")
        self._certificate = own[0]
        self.key: ec.EllipticCurvePrivateKey = key
        self.certificate_pem: bytes = _encode(self._certificate)
        self.roots: tuple[x509.Certificate, ...] = tuple(roots)
        """All roots of the mesh: two while the root changes."""
        self.mesh: str = _read_mesh(self._certificate)

    def issue(
        self, identity: Identity, public_key: ec.EllipticCurvePublicKey, lifetime: timedelta
    ) -> bytes:
        """Return a certificate for an identity, PEM.

        Raises:
            ValueError: the identity is of another mesh.
        """
        if identity.mesh != self.mesh:
            raise ValueError("the identity belongs to another mesh")
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(str(identity))]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.role is not Role.BRIDGE:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names.append(x509.DNSName(identity.server_name))
        if identity.role in {Role.MEMBER, Role.TOOLS}:
            names += _LOCAL_NAMES
        subject = x509.NameAttribute(NameOID.COMMON_NAME, f"trunkline {identity.role}")
        builder = (
            _begin(x509.Name([subject]), public_key, issuer=self.key, lifetime=lifetime)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_root=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        return _encode(builder.sign(self.key, hashes.SHA256()))

    def create_next_root(self) -> tuple[bytes, bytes, bytes]:
        """Return the certificate and the key of a root that can replace this root, in PEM.

        The third part is a certificate of the new key that this root has signed. With it, a
        process that trusts this root can trust the next root.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name_root()
        certificate = _build_root(self.mesh, name, key.public_key(), issuer=key, issuer_name=name)
        former = self._certificate.subject
        cross = _build_root(self.mesh, name, key.public_key(), issuer=self.key, issuer_name=former)
        return _encode(certificate), _key_pem(key), _encode(cross)


def create_root() -> tuple[bytes, bytes]:
    """Return the certificate and the key of a new root, PEM. Its trust domain is random."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, mesh = _name_root(), f"mesh-{secrets.token_hex(16)}"
    root = _build_root(mesh, name, key.public_key(), issuer=key, issuer_name=name)
    return _encode(root), _key_pem(key)


def check_roots(offered_pem: bytes, *, current_pem: bytes) -> bytes:
    """Return the roots in an offer, PEM. It has a certificate by a current root for each new one.

    Raises:
        ValueError: it is malformed, or no current root has signed a new one.
    """
    offered = x509.load_pem_x509_certificates(offered_pem)
    current = x509.load_pem_x509_certificates(current_pem)
    roots = [certificate for certificate in offered if _is_issued_by(certificate, certificate)]
    signed = {
        _encode_key(certificate)
        for certificate in offered
        if _may_issue(certificate) and any(_is_issued_by(certificate, root) for root in current)
    }
    if not roots or not all(_encode_key(root) in signed for root in roots):
        raise ValueError("it has a root that the current one has not signed")
    return b"".join(map(_encode, roots))


def create_key() -> tuple[ec.EllipticCurvePublicKey, bytes]:
    """Return the public part of a new P-256 key, and its private part as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.public_key(), _key_pem(key)


def create_signing_request() -> tuple[bytes, bytes]:
    """Return a signing request (PKCS #10, DER) for a new key, and the key as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = request.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER), _key_pem(key)


def read_signing_request(request: bytes) -> ec.EllipticCurvePublicKey:
    """Return the P-256 key of a signing request, whose sender has proven to hold its private part.

    Raises:
        ValueError: the request is malformed, its signature is wrong, or it has another kind of key.
    """
    signed = x509.load_der_x509_csr(request)
    key = signed.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("the key is not a P-256 key")
    if not signed.is_signature_valid:
        raise ValueError("the signature of the signing request is wrong")
    return key


def name_instance(key: ec.EllipticCurvePublicKey) -> str:
    """Return the instance of a process by its first key. A repeated request has the same."""
    return x509.SubjectKeyIdentifier.from_public_key(key).digest.hex()[:16]


def check_renewed(
    certificate_pem: bytes, *, former_pem: bytes, key_pem: bytes, roots_pem: bytes
) -> None:
    """Check that a certificate continues the former one: issuer and identity, with the new key.

    Raises:
        ValueError: it does not, or it is malformed.
    """
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    key = serialization.load_pem_private_key(key_pem, password=None)
    if certificate.public_key() != key.public_key():
        raise ValueError("it has another key")
    if read_identity(certificate_pem)[0] != read_identity(former_pem)[0]:
        raise ValueError("it has another identity")
    if not any(
        map(partial(_is_issued_by, certificate), x509.load_pem_x509_certificates(roots_pem))
    ):
        raise ValueError("no root of the mesh has signed it")


def read_identity(certificate_pem: bytes) -> tuple[Identity, datetime]:
    """Return the identity in a certificate, and the time at which it ends.

    Raises:
        ValueError: it is malformed, or is not an identity of a mesh.
    """
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    return Identity.parse(f"spiffe://{_read_mesh(certificate)}"), certificate.not_valid_after_utc


def _name_root() -> x509.Name:
    # Former and next roots have names of their own, so that no chain is ambiguous.
    name = f"trunkline mesh {secrets.token_hex(4)}"
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _build_root(
    mesh: str,
    name: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    *,
    issuer: ec.EllipticCurvePrivateKey,
    issuer_name: x509.Name,
) -> x509.Certificate:
    trust_domain = x509.UniformResourceIdentifier(f"spiffe://{mesh}")
    return (
        _begin(name, public_key, issuer=issuer, lifetime=_ROOT_LIFETIME)
        .issuer_name(issuer_name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_root=True), critical=True)
        .add_extension(x509.SubjectAlternativeName([trust_domain]), critical=False)
        .sign(issuer, hashes.SHA256())
    )


def _begin(
    name: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    *,
    issuer: ec.EllipticCurvePrivateKey,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _TOLERANCE)
        .not_valid_after(now + lifetime)
        .public_key(public_key)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(authority, critical=False)
    )


def _is_issued_by(certificate: x509.Certificate, root: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _may_issue(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return constraints.value.ca


def _key_usage(*, is_root: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        # The root signs join tokens as well.
        digital_signature=True,
        key_cert_sign=is_root,
        crl_sign=is_root,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _encode(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _encode_key(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read_mesh(certificate: x509.Certificate) -> str:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        raise ValueError("the root names no trust domain") from None
    uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1 or not uris[0].startswith("spiffe://"):
        raise ValueError("the root names no trust domain")
    return uris[0].removeprefix("spiffe://")
