"""Mutates JSON, protobuf and bytes as a hostile client may, from one random generator."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes that are inserted into JSON unchanged."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Pairs:
    """An object that may have duplicate names."""

    items: Sequence[tuple[str, Any]]


def _nested(levels: int, opening: bytes, closing: bytes) -> bytes:
    return opening * levels + b"1" + closing * levels


ODD_VALUES: Final = (
    b"null", b"true", b"false", b"0", b"-1", b"-0", b"0.5", b"1e2", b"1e400", b"-1E999", b"01",
    b"1.", b"NaN", b"-Infinity", b"2147483648", b"-2147483649", b"9223372036854775808",
    b"9" * 300, b"9" * 5000, b'""', b'" "', b'"x"', b'"TASK_STATE_NOPE"', b'"ROLE_AGENT"',
    b'"2026-01-01T00:00:00Z"', b'"../.."', b'"0"', b'"-1"', b'"1e400"', b'"true"', b'"NaN"',
    b'"\\u0000"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude80"', b'"\xff\xfe"',
    b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xef\xbb\xbf"', b'"\x00"', b'"\n"', b'"\\x41"',
    b"'single'", b"/* no */", b"undefined", b'"' + b"x" * 20_000 + b'"',
    b'"http://169.254.169.254/latest"', b'"https://localhost/"', b'"file:///etc/passwd"',
    b'"%00"', b"[]", b"{}", b"[null]", b"[[]]", b'{"":null}', b'{"a":1,"a":2}', b'[{"text":1}]',
    b'[{}]', b'{"text":"a","url":"b"}', b'{"__proto__":{}}',
    b'{"@type":"type.googleapis.com/google.protobuf.Any"}', _nested(20, b"[", b"]"),
    _nested(99, b'{"a":', b"}"), _nested(300, b"[", b"]"), _nested(5000, b"[", b"]"),
    _nested(2000, b'{"a":', b"}"), b"[" * 3000, b"[" + b"0," * 3000 + b"0]",
    b"[" + b"{}," * 3000 + b"{}]",
)  # fmt: skip
ODD_NAMES: Final = (
    "", " ", "id", "ID", "message", "Message", "message_id", "messageId", "taskId", "task_id",
    "name", "contextId", "parts", "role", "kind", "type", "text", "data", "file", "raw", "url",
    "metadata", "tenant", "configuration", "historyLength", "history_length",
    "returnImmediately", "blocking", "pageSize", "pageToken", "status", "acceptedOutputModes",
    "pushNotificationConfig", "taskPushNotificationConfig", "extensions", "referenceTaskIds",
    "__proto__", "constructor", "params", "method", "jsonrpc", "é", "\u0000", "sessionId",
    "pushNotification", "statusTimestampAfter", "a" * 3000,
)  # fmt: skip
_ODD_BYTES: Final = (
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r\n", b'"', b"\\", b"{", b"}", b"[",
    b"]", b",", b":", b"\\ud800", b"\x80" * 9, b"1e999", b"\xf4\x90\x80\x80", b"/", b"0\r\n\r\n",
)  # fmt: skip


class Mutator:
    """Makes random mutations from its generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def json(self, value: object) -> bytes:
        """Return a mutated JSON text: mostly its values are changed, sometimes its bytes."""
        for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3))):
            value = self._spoil(value)
        text = encode(value)
        return self.bytes(text) if self.rng.random() < 0.15 else text

    def bytes(self, text: bytes) -> bytes:
        """Return bytes with random cuts, flips, repetitions or insertions."""
        rng = self.rng
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.randrange(1, 9))
        return rng.choice(
            (
                lambda: text[:at],
                lambda: text[at:],
                lambda: text[:at] + text[end:],
                lambda: text[:at] + rng.choice(_ODD_BYTES) + text[at:],
                lambda: text[:at] + rng.choice(_ODD_BYTES) + text[end:],
                lambda: text[:at] + rng.randbytes(rng.randrange(1, 5)) + text[end:],
                lambda: text[:end] + text[at:],
                lambda: text + text,
                lambda: text + b"\x00",
                lambda: b"\xef\xbb\xbf" + text,
                lambda: text.decode("latin-1").encode("utf-16"),
                lambda: rng.randbytes(rng.randrange(64)),
                lambda: b"[" + text + b"]",
            )
        )()

    def odd_text(self) -> str:
        """Return a text that is unusual or invalid in headers and paths."""
        return self.rng.choice(
            (
                "", " ", "0", "-1", "1.0", "0.3", "0.1", "9.9", "1.0, 0.3", "x" * 3000, "é",
                "\x01", "\t", "None", "null", "1e400", "9" * 40, "a,b,,c", "../..", "%00", "%ff",
                "\x7f", '"', "{}", "=", "12.3", "1.2.3.4", "-5.0", "999999999999.1",
                "9007199254740993.0", "nan", "inf",
            )
        )  # fmt: skip

    def _spoil(self, value: object) -> object:
        """Return a value with one change somewhere in it."""
        rng, paths = self.rng, _paths(value)
        # Prefer deep values, which the server validates last.
        path = max(rng.choice(paths), rng.choice(paths), key=len)
        return _changed(value, path, rng.choice(_CHANGES), rng)


def encode(value: object) -> bytes:
    """Return the JSON text of a value that may hold Raw and Pairs."""
    match value:
        case Raw(text):
            return text
        case Pairs(items):
            return b"{" + b",".join(_member(name, item) for name, item in items) + b"}"
        case dict():
            return b"{" + b",".join(_member(name, item) for name, item in value.items()) + b"}"
        case list():
            return b"[" + b",".join(map(encode, value)) + b"]"
        case _:
            return json.dumps(value).encode()


def _member(name: str, value: object) -> bytes:
    return json.dumps(name).encode() + b":" + encode(value)


def _paths(value: object, path: Path = ()) -> "list[Path]":
    paths: list[Path] = [path]
    inner: Sequence[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    for name, item in inner:
        paths += _paths(item, (*path, name))
    return paths


_Change: TypeAlias = Callable[[Any, random.Random], object]


def _changed(value: Any, path: Path, change: _Change, rng: random.Random) -> object:
    if not path:
        return change(value, rng)
    copy = value.copy()
    copy[path[0]] = _changed(copy[path[0]], path[1:], change, rng)
    return copy


def _replaced(_value: Any, rng: random.Random) -> object:
    return Raw(rng.choice(ODD_VALUES))


def _dropped(value: Any, rng: random.Random) -> object:
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        return {name: item for name, item in value.items() if name != key}
    return [] if isinstance(value, list) else None


def _doubled(value: Any, rng: random.Random) -> object:
    if isinstance(value, dict) and value:
        name = rng.choice(list(value))
        return Pairs([*value.items(), (name, rng.choice((value[name], None, "other")))])
    return value * rng.choice((2, 50)) if isinstance(value, list) else [value, value]


def _renamed(value: Any, rng: random.Random) -> object:
    if isinstance(value, dict) and value:
        old, new = rng.choice(list(value)), rng.choice(ODD_NAMES)
        return {new if name == old else name: item for name, item in value.items()}
    return {rng.choice(ODD_NAMES): value}


def _added(value: Any, rng: random.Random) -> object:
    odd = Raw(rng.choice(ODD_VALUES))
    if isinstance(value, Mapping):
        return {**value, rng.choice(ODD_NAMES): odd}
    return [*value, odd] if isinstance(value, list) else {"value": value, "odd": odd}


def _wrapped(value: Any, rng: random.Random) -> object:
    return rng.choice(([value], {"a": value}, str(value)))


_CHANGES: Final[Sequence[_Change]] = (
    _replaced, _replaced, _replaced, _dropped, _doubled, _renamed, _added, _wrapped,
)  # fmt: skip
