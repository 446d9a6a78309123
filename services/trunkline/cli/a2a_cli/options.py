"""The options of all commands: their names, help, defaults, and how values in text are parsed."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_type_hints

from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.options import flag, option
from trunkline.core.durations import parse_duration
from trunkline.core.json_types import JsonValue

PREFIX: Final = "A2ACLI_"
SECRETS: Final = frozenset({"bearer", "api_key", "client_secret"})
"""The options that hold credentials."""
_EXPOSED: Final = "Others see a flag in the process list and the shell's history; prefer "


class OutputFormat(StrEnum):
    """The formats of the output."""

    TEXT = "text"
    JSON = "json"


def parse_wait(name: str) -> Callable[[str | float], float]:
    """Return a function that parses `2s`, `500ms`, `5m`, `1h` or a plain number of seconds."""

    def parse(text: str | float) -> float:
        if isinstance(text, float):
            return text
        with suppress(ValueError):
            if seconds := parse_duration(text if text[-1:].isalpha() else f"{text}s"):
                return seconds
        raise usage(f"{name}: {text!r} is no duration such as 2s, 500ms or 5m")

    return parse


def _parse_metadata(text: str) -> JsonValue:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise usage("--metadata is not a JSON object", """write it like '{"key": "value"}'""")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardOptions:
    """The values of the options of all commands.

    Each option but `--config` may also be a variable of the environment or a line of an `.env`
    file. Brackets at the end of a help text hold what counts without a value.
    """

    agent_card: Annotated[
        str,
        option(
            "REF",
            "The agent: a host, a card's URL or file, or CATALOG#NAME.",
            "--agent-card",
            "-a",
        ),
    ] = ""
    output: Annotated[
        OutputFormat, option("FORMAT", "Format of the output. [text]", "--output", "-o")
    ] = OutputFormat.TEXT
    transport: Annotated[
        list[str] | None,
        option(
            "BINDING",
            "A preferred binding: JSONRPC, HTTP+JSON or GRPC. Repeatable, best first. "
            "[the order of the card]",
        ),
    ] = None
    a2a_version: Annotated[
        str,
        option(
            "VERSION",
            "The protocol version to signal: 1.x, or 0.3, which must be asked for. "
            "[the highest that both support, at least 1.0]",
        ),
    ] = ""
    wait: Annotated[
        bool, flag("Wait until the task ends or asks for input. [on for send]", "--wait", "--watch")
    ] = False
    returns_at_once: Annotated[
        bool,
        flag(
            "Return as soon as the task has an id. [off]",
            "--async",
            "--return-immediately",
            "--no-wait",
        ),
    ] = False
    poll_interval: Annotated[
        float, option("TIME", "Time between polls. [2s]", parser=parse_wait("--poll-interval"))
    ] = 2.0
    timeout: Annotated[
        float, option("TIME", "Stop waiting after this time. [30m]", parser=parse_wait("--timeout"))
    ] = 1800.0
    context_id: Annotated[str, option("ID", "Group the message with this context.")] = ""
    task_id: Annotated[str, option("ID", "Continue this task.")] = ""
    metadata: Annotated[
        Any, option("JSON", "Metadata of the request, a JSON object.", parser=_parse_metadata)
    ] = None
    svc_param: Annotated[
        list[str] | None,
        option("KEY:VALUE", "A service parameter: a header, or metadata of gRPC. Repeatable."),
    ] = None
    extension: Annotated[
        list[str] | None, option("URI", "Declare support for a protocol extension. Repeatable.")
    ] = None
    bearer: Annotated[str, option("TOKEN", f"A bearer token. {_EXPOSED}A2ACLI_BEARER.")] = ""
    api_key: Annotated[str, option("KEY", f"An API key. {_EXPOSED}A2ACLI_API_KEY.")] = ""
    client_id: Annotated[str, option("ID", "The OAuth client of `auth login`.")] = ""
    client_secret: Annotated[
        str, option("SECRET", f"The client's secret. {_EXPOSED}A2ACLI_CLIENT_SECRET.")
    ] = ""
    ca_cert: Annotated[Path | None, option("FILE", "Trust these root certificates.")] = None
    client_cert: Annotated[Path | None, option("FILE", "The certificate for mutual TLS.")] = None
    client_key: Annotated[Path | None, option("FILE", "The key of that certificate.")] = None
    insecure: Annotated[
        bool,
        flag(
            "Do not verify TLS certificates (development only). [off: certificates are verified]",
            "--insecure",
        ),
    ] = False
    verbose: Annotated[
        bool, flag("Show all parts and the data exchanged. [off: concise]", "--verbose")
    ] = False
    debug: Annotated[bool, flag("Log to stderr what goes over the wire. [off]", "--debug")] = False
    config_file: Annotated[
        str, option("FILE", "Read this .env file, not the local one.", "--config")
    ] = ""
    version: Annotated[bool, flag("Print the version.", "--version", "-v")] = False

    @property
    def is_json(self) -> bool:
        """The output is JSON."""
        return self.output is OutputFormat.JSON

    @property
    def secrets(self) -> list[str]:
        """The values that no output may show."""
        shown = [getattr(self, name) for name in SECRETS]
        return [text for text in (*shown, *self.service_params().values()) if text]

    def service_params(self) -> dict[str, str]:
        """Return the service parameters. CommandError: one is not KEY:VALUE."""
        params = {}
        for entry in self.svc_param or ():
            key, colon, value = entry.partition(":")
            is_valid = key.strip().isascii() and value.isascii() and (key + value).isprintable()
            if not colon or not key.strip() or not is_valid:
                raise usage("--svc-param is not of the form KEY:VALUE")
            params[key.strip()] = value.strip()
        return params


@dataclass(frozen=True, slots=True)
class OptionNames:
    """The names of an option, and whether a value follows it."""

    field: str
    name: str
    """The long flag without its dashes."""
    flags: tuple[str, ...]
    takes_value: bool
    is_list: bool
    default_text: str
    """What counts without a value, as its help says it."""

    @property
    def variable(self) -> str:
        """The environment variable, and the name in `.env` files."""
        return PREFIX + self.name.replace("-", "_").upper()


@lru_cache(maxsize=1)
def list_options() -> tuple[OptionNames, ...]:
    """Return the names of all options."""
    hints = get_type_hints(StandardOptions, include_extras=True)
    found = []
    for field in fields(StandardOptions):
        kind, info = get_args(hints[field.name])
        # typer keeps the first name of an option as its default.
        flags = (*([info.default] if isinstance(info.default, str) else ()), *info.param_decls)
        flags = flags or (f"--{field.name.replace('_', '-')}",)
        name = next(text for text in flags if text.startswith("--")).removeprefix("--")
        default_text = info.help.rpartition(" [")[2].removesuffix("]") if "[" in info.help else ""
        is_list = list[str] in get_args(kind)
        found.append(OptionNames(field.name, name, flags, kind is not bool, is_list, default_text))
    return tuple(found)
