"""The options of all commands: names, help, defaults, and how values in text are parsed."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from trunkline.cli.a2a_cli.failures import usage
from trunkline.durations import parse_duration

OptionKind = Literal["text", "flag", "duration", "json", "list"]

PREFIX: Final = "A2ACLI_"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """An option that every command accepts."""

    name: str
    """The long flag without its dashes."""
    help: str
    kind: OptionKind = "text"
    metavar: str = ""
    default: str = ""
    """The built-in default, as help shows it; empty: none."""
    short: str = ""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    is_secret: bool = False

    @property
    def key(self) -> str:
        """The name in Python."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable, and the name in `.env` files."""
        return PREFIX + self.key.upper()

    @property
    def built_in(self) -> Any:  # noqa: ANN401  the option's type
        """The value without any source; None: there is none."""
        match self.kind:
            case "flag":
                return False
            case "list":
                return []
            case "duration":
                return parse_duration(self.default)
            case _:
                return self.default if self.choices else None

    def parse(self, text: str, source: str) -> Any:  # noqa: ANN401  the option's type
        """Return the value in a text. CommandError: it is invalid."""
        if self.choices and text not in self.choices:
            raise usage(f"{source}: {text!r} is none of {', '.join(self.choices)}")
        match self.kind:
            case "flag":
                if text.lower() not in _TRUE | _FALSE:
                    raise usage(f"{source}: {text!r} is neither true nor false")
                return text.lower() in _TRUE
            case "duration":
                return _parse_duration(text.strip(), source)
            case "json":
                return parse_object(text, source)
            case "list":
                return [entry.strip() for entry in text.split(",") if entry.strip()]
            case _:
                return text


def _parse_duration(text: str, source: str) -> float:
    """Return the seconds of `2s`, `500ms`, `5m`, `1h` or a plain number of seconds."""
    with suppress(ValueError):
        if seconds := parse_duration(text if text[-1:].isalpha() else f"{text}s"):
            return seconds
    raise usage(f"{source}: {text!r} is no duration such as 2s, 500ms or 5m")


def parse_object(text: str, source: str) -> dict[str, Any]:
    """Return a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise usage(f"{source} is not a JSON object", """write it like '{"key": "value"}'""")
    return value


_EXPOSED: Final = "Others see a flag in the process list and the shell's history; prefer "

OPTIONS: Final = (
    OptionSpec(
        "agent-card", "The agent: a host, a card's URL or file, or CATALOG#NAME.",
        metavar="REF", short="-a",
    ),
    OptionSpec(
        "output", "Format of the output.",
        metavar="FORMAT", default="text", short="-o", choices=("text", "json"),
    ),
    OptionSpec(
        "transport", "A preferred binding: JSONRPC, HTTP+JSON or GRPC. Repeatable, best first.",
        kind="list", metavar="BINDING", default="the order of the card",
    ),
    OptionSpec(
        "a2a-version", "The protocol version to signal: 1.x, or 0.3, which must be asked for.",
        metavar="VERSION", default="the highest that both support, at least 1.0",
    ),
    OptionSpec(
        "wait", "Wait until the task ends or asks for input.",
        kind="flag", default="on for send", aliases=("watch",),
    ),
    OptionSpec(
        "async", "Return as soon as the task has an id.",
        kind="flag", default="off", aliases=("return-immediately", "no-wait"),
    ),
    OptionSpec("poll-interval", "Time between polls.", "duration", "TIME", default="2s"),
    OptionSpec("timeout", "Stop waiting after this time.", "duration", "TIME", default="30m"),
    OptionSpec("context-id", "Group the message with this context.", metavar="ID"),
    OptionSpec("task-id", "Continue this task.", metavar="ID"),
    OptionSpec("metadata", "Metadata of the request, a JSON object.", "json", "JSON"),
    OptionSpec(
        "svc-param", "A service parameter: a header, or metadata of gRPC. Repeatable.",
        kind="list", metavar="KEY:VALUE",
    ),
    OptionSpec(
        "extension", "Declare support for a protocol extension. Repeatable.",
        kind="list", metavar="URI",
    ),
    OptionSpec(
        "bearer", f"A bearer token. {_EXPOSED}A2ACLI_BEARER.", metavar="TOKEN", is_secret=True
    ),
    OptionSpec(
        "api-key", f"An API key. {_EXPOSED}A2ACLI_API_KEY.", metavar="KEY", is_secret=True
    ),
    OptionSpec("client-id", "The OAuth client of `auth login`.", metavar="ID"),
    OptionSpec(
        "client-secret", f"Its secret. {_EXPOSED}A2ACLI_CLIENT_SECRET.",
        metavar="SECRET", is_secret=True,
    ),
    OptionSpec("ca-cert", "Trust these root certificates.", metavar="FILE"),
    OptionSpec("client-cert", "The certificate for mutual TLS.", metavar="FILE"),
    OptionSpec("client-key", "The key of that certificate.", metavar="FILE"),
    OptionSpec(
        "insecure", "Do not verify TLS certificates (development only).",
        kind="flag", default="off: certificates are verified",
    ),
    OptionSpec(
        "verbose", "Show all parts and the data exchanged.", kind="flag", default="off: concise"
    ),
    OptionSpec("debug", "Log to stderr what goes over the wire.", kind="flag", default="off"),
)  # fmt: skip
BY_KEY: Final[Mapping[str, OptionSpec]] = {option.key: option for option in OPTIONS}
