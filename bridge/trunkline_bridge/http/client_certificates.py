"""The names of clients in their verified certificates (mutual TLS).

The name is the first URI of the subject alternative names, which is the id of a SPIFFE workload,
else the first DNS name, else the common name. OpenSSL or BoringSSL has verified the certificate.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any
from urllib.parse import unquote

_PROPERTIES = ("peer_uri", "peer_dns", "x509_common_name")


def certificate_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the name in a certificate of `SSLSocket.getpeercert`, or an empty text."""
    if not certificate:
        return ""
    alternatives: Iterable[tuple[str, str]] = certificate.get("subjectAltName", ())
    names = list(alternatives)
    return next(chain(_values(names, "URI"), _values(names, "DNS"), _common_names(certificate)), "")


def certificate_name_of_call(properties: Mapping[str, Iterable[bytes]]) -> str:
    """Return the name in the certificate of a call, or an empty text.

    `properties` are the properties of grpc's `auth_context`.
    """
    values = (value for name in _PROPERTIES for value in properties.get(name, ()))
    return next((value.decode("utf-8", "replace") for value in values), "")


def parse_peer_address(peer: str) -> str:
    """Return the IP address in grpc's form of a peer, or an empty text if the peer has none."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return unquote(address).rpartition(":")[0].strip("[]")


def _values(names: Iterable[tuple[str, str]], kind: str) -> Iterator[str]:
    return (value for name, value in names if name == kind)


def _common_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for attributes in certificate.get("subject", ()):
        yield from _values(attributes, "commonName")
