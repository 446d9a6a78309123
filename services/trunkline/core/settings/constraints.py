"""Constraints of settings, written into their annotations and applied by pydantic.

They build their schema on demand, so that importing the settings does not load pydantic.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from trunkline.core.network import parse_authority
from trunkline.core.settings.addresses import HostPort
from trunkline.core.settings.postgres_url import describe_postgres_url

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

DAY_S: Final = 24 * 3600.0
_ORIGIN: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://[a-z0-9.-]+(?::[0-9]+)?|https?://\[[0-9a-f:]+\](?::[0-9]+)?"
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `least` to `most`, both included. A boolean is not a number."""

    least: float = 0
    most: float = math.inf

    def __get_pydantic_core_schema__(
        self, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        number = core_schema.no_info_before_validator_function(_refuse_boolean, handler(source))
        return core_schema.no_info_after_validator_function(self._check, number)

    def __get_pydantic_json_schema__(
        self, schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> dict[str, Any]:
        limits = {"minimum": self.least, "maximum": self.most}
        numbers = {name: limit for name, limit in limits.items() if not math.isinf(limit)}
        return {**handler(schema), **numbers}

    def _check(self, number: float) -> float:
        if not self.least <= number <= self.most or math.isinf(number):
            raise ValueError(f"{number} is not between {self.least} and {self.most}")
        return number


@dataclass(frozen=True, slots=True)
class Convert:
    """Converts a value from a source before pydantic validates it."""

    function: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.function, handler(source))


@dataclass(frozen=True, slots=True)
class Check:
    """Checks a value of the right type. The function returns the value or raises ValueError."""

    function: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.function, handler(source))


def check_url(url: str) -> str:
    """Return the URL of an HTTP server.

    Raises:
        ValueError: it is not an HTTP URL, or it contains a password.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("credentials don't belong into a URL; name a variable that holds them")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL that starts with http:// or https://")
    return url


def check_participant_url(url: str) -> str:
    """Return the URL of an HTTP or WebSocket server.

    Raises:
        ValueError: it is neither, or it contains a password.
    """
    scheme, separator, rest = url.partition("://")
    if scheme not in {"http", "https", "ws", "wss"}:
        raise ValueError(f"{url!r} does not start with http://, https://, ws:// or wss://")
    check_url(f"{scheme.replace('ws', 'http')}{separator}{rest}")
    return url


def check_optional_url(url: str) -> str:
    """Return the URL of an HTTP server, or an empty string.

    Raises:
        ValueError: it is not an HTTP URL, or it contains a password.
    """
    return check_url(url) if url else url


def check_optional_postgres_url(url: str) -> str:
    """Return the URL of a PostgreSQL database, or an empty string.

    Raises:
        ValueError: it is invalid. The text does not repeat it: it may have a password.
    """
    if url:
        describe_postgres_url(url)
    return url


def check_optional_redis_url(url: str) -> str:
    """Return the URL of a Redis server, or an empty string.

    Raises:
        ValueError: it has another scheme. The text does not repeat it: it may have a password.
    """
    if url and not url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("is not a URL that starts with redis://, rediss:// or unix://")
    return url


def check_name(name: str) -> str:
    """Return a name of keys in a database.

    Raises:
        ValueError: it is empty or has other characters.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name; use letters, digits, `.`, `:`, `_` and `-`")
    return name


def check_optional_address(text: str) -> str:
    """Return `HOST:PORT`, or an empty string.

    Raises:
        ValueError: the text is neither of them.
    """
    if text:
        HostPort.parse(text)
    return text


def check_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return hosts, each as HOST or HOST:PORT.

    Raises:
        ValueError: one of them has another form.
    """
    for host in hosts:
        parse_authority(host)
    return hosts


def check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    """Return origins of web pages, each as browsers send it (RFC 6454), or `*`.

    Raises:
        ValueError: one of them has another form.
    """
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not SCHEME://HOST or SCHEME://HOST:PORT in lower case")
    return origins


def split_texts(value: object) -> object:
    """Split a text at its commas. Variables and flags hold a list that way."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def expand_path(value: object) -> object:
    """Return a path in which `~` is the user's home.

    Raises:
        ValueError: it is empty, which pydantic would read as the current folder.
    """
    if value == "":
        raise ValueError("expected a path, got nothing")
    return Path(value).expanduser() if isinstance(value, str) else value


def _refuse_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"expected a number, got {value!r}")
    return value


NonNegativeSeconds: TypeAlias = Annotated[float, Between()]
"""Zero or more."""
Seconds: TypeAlias = Annotated[float, Between(0.001, DAY_S)]
"""From one millisecond to one day."""
Texts: TypeAlias = Annotated[tuple[str, ...], Convert(split_texts)]
"""A list of texts; in a variable or a flag, separated by commas."""
HostNames: TypeAlias = Annotated[tuple[str, ...], Convert(split_texts), Check(check_hosts)]
"""A list of hosts, each as HOST or HOST:PORT; in a variable, separated by commas."""
Origins: TypeAlias = Annotated[tuple[str, ...], Convert(split_texts), Check(check_origins)]
"""A list of origins of web pages, or `*`; in a variable, separated by commas."""
FilePath: TypeAlias = Annotated[Path, Convert(expand_path)]
Url: TypeAlias = Annotated[str, Check(check_url)]
ParticipantUrl: TypeAlias = Annotated[str, Check(check_participant_url)]
OptionalUrl: TypeAlias = Annotated[str, Check(check_optional_url)]
OptionalPostgresUrl: TypeAlias = Annotated[str, Check(check_optional_postgres_url)]
OptionalRedisUrl: TypeAlias = Annotated[str, Check(check_optional_redis_url)]
KeyName: TypeAlias = Annotated[str, Check(check_name)]
OptionalAddress: TypeAlias = Annotated[str, Check(check_optional_address)]
