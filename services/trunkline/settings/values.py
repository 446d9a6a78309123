"""Values as a file, a variable or a flag gives them, made what a setting of their type holds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from trunkline.settings.addresses import HostPort


def read_value(kind: Any, value: object) -> Any:  # noqa: ANN401 a type, and a value of it
    """Return what was given for a field of a type as a value of that type.

    Raises:
        ValueError: it can't be read as one; the text says what was expected.
    """
    return _READERS.get(kind, _tables)(value)


def read_numbers(value: object) -> dict[str, float]:
    """Return what is given as `NAME=NUMBER,…`.

    Raises:
        ValueError: it isn't that.
    """
    if isinstance(value, str):
        pairs = [piece.partition("=") for piece in _texts(value)]
        value = {name.strip(): number.strip() for name, _, number in pairs}
    if not isinstance(value, dict):
        raise ValueError(f"expected NAME=NUMBER, got {value!r}")
    return {_text(name): _number(number) for name, number in value.items()}


def check_url(url: str) -> None:
    """See that a text is the URL of an HTTP server, and holds no password.

    Raises:
        ValueError: it isn't.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("credentials don't belong into a URL; name a variable that holds them")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL that starts with http:// or https://")


def check_optional_url(url: str) -> str:
    """Return a text that is empty or the URL of an HTTP server, for a setting of a plugin.

    Raises:
        ValueError: it is neither, or it holds a password.
    """
    if url:
        check_url(url)
    return url


def _address(value: object) -> HostPort:
    return value if isinstance(value, HostPort) else HostPort.parse(_text(value))


def _path(value: object) -> Path:
    if value == "":
        raise ValueError("expected a path, got nothing")
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {value!r}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(piece.strip() for piece in value.split(",") if piece.strip())
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of texts, got {value!r}")
    return tuple(_text(item) for item in value)


def _texts_by_name(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"expected NAME = TEXT, got {value!r}")
    return {_text(name): _text(text) for name, text in value.items()}


def _anything_by_name(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"expected NAME = VALUE, got {value!r}")
    return {_text(name): one for name, one in value.items()}


def _tables(value: object) -> object:
    if isinstance(value, str):
        raise ValueError("write it as a table into trunkline.toml")
    return value


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    spelled = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, str) and value.lower() in spelled:
        return spelled[value.lower()]
    raise ValueError(f"expected true or false, got {value!r}")


def _whole(value: object) -> int:
    number = _number(value)
    if not number.is_integer():
        raise ValueError(f"expected a whole number, got {value!r}")
    return int(number)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a number, got {value!r}")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"expected a number, got {value!r}") from None
    if number != number or number in {float("inf"), float("-inf")}:
        raise ValueError(f"expected a number, got {value!r}")
    return number


_READERS: dict[Any, Callable[[object], object]] = {
    HostPort: _address,
    Path: _path,
    Path | None: _path,
    str: _text,
    Literal["normal", "full"]: _text,
    Literal["debug", "info", "warning", "error"]: _text,
    Literal["plain", "json"]: _text,
    tuple[str, ...]: _texts,
    Mapping[str, str]: _texts_by_name,
    Mapping[str, object]: _anything_by_name,
    bool: _truth,
    int: _whole,
    float: _number,
    str | None: _text,
    bool | None: _truth,
    int | None: _whole,
    float | None: _number,
}
