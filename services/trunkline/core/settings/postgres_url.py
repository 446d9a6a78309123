"""The URL of a PostgreSQL database: `postgresql://user:password@host:port,host:port/database`."""

from typing import Final
from urllib.parse import parse_qsl, urlsplit

_ENCODE: Final = (
    "has a character in its user, password or options that must be percent-encoded: "
    "for example / is %2F, # is %23, ? is %3F, @ is %40, [ is %5B"
)

_VALUES: Final = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": (
        *("any", "primary", "standby", "prefer-standby"),
        *("read-write", "read-only"),
    ),
}


def describe_postgres_url(url: str) -> str:
    """Return the URL without the user, the password and the options.

    Raises:
        ValueError: the URL is invalid. The text of the error has no part of the URL.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("is not a URL that starts with postgresql://")
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValueError(_ENCODE) from None
    account, _, hosts = parts.netloc.rpartition("@")
    # A / ? or # of a password would end the part with the hosts.
    if "@" in account or "@" in parts.path or parts.fragment or "@" in parts.query:
        raise ValueError(_ENCODE)
    if not all(_is_host(host) for host in hosts.split(",")):
        raise ValueError(
            "must name hosts and their ports, as in postgresql://user:password@db1:5432,db2/name; "
            "in a password, / is %2F, # is %23 and ? is %3F"
        )
    for name, values in _VALUES.items():
        if options.get(name, values[0]) not in values:
            raise ValueError(f"needs one of {', '.join(values)} as {name}")
    return f"postgresql://{hosts}{parts.path}"


def _is_host(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return True
    return bool(name) and port.isascii() and port.isdigit()
