"""Options that several commands share, and their defaults."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from trunkline.cli.terminal import print_stderr
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import ConfigurationError, InvalidArgumentError

# Settings take a quarter of the time of a command's help to load.
if TYPE_CHECKING:
    from trunkline.core.settings import IgnoredSettings, Settings

T = TypeVar("T")

_URL_VARIABLE = "TRUNKLINE_URL"
_KEY_VARIABLE = "TRUNKLINE_API_KEY"


def option(metavar: str | None, text: str, *names: str, **settings: Any) -> Any:  # noqa: ANN401
    """Declare an option: its placeholder, its help, and its names unless the parameter's is right.

    Help shows the default only with `show_default`.
    """
    return typer.Option(*names, metavar=metavar, help=text, **{"show_default": False, **settings})


def flag(text: str, *names: str, **settings: Any) -> Any:  # noqa: ANN401
    """Declare an option without a value: its help and its names."""
    return typer.Option(*names, help=text, **settings)


def argument(metavar: str, text: str, **settings: Any) -> Any:  # noqa: ANN401
    """Declare an argument: its placeholder and its help. `show_default` is as for an option."""
    return typer.Argument(metavar=metavar, help=text, **{"show_default": False, **settings})


def choose(where: str, name: str, known: Mapping[str, T]) -> T:
    """Return the value of a name, which the option or argument `where` takes.

    Raises:
        InvalidArgumentError: there is no such name.
    """
    if name not in known:
        noun = where.removeprefix("--").lower()
        problem = f"no such {noun}; there are: {', '.join(known)}"
        raise InvalidArgumentError(where, problem)
    return known[name]


JsonOption = Annotated[bool, flag("Print JSON.", "--json")]
JsonLinesOption = Annotated[bool, flag("Print one JSON object a line.", "--json")]
UrlOption = Annotated[
    str | None, option("URL", "The URL of a mesh, or of an agent of it. [TRUNKLINE_URL]", "--url")
]
ApiKeyOption = Annotated[
    str | None,
    option("KEY", "An API key or token that identifies you. [TRUNKLINE_API_KEY]", "--api-key"),
]


def _choose_account(context: typer.Context, parameter: typer.CallbackParam, account: str) -> str:
    """Return the account of an option, or without one, the account of the API key that is set."""
    key = os.environ.get(_KEY_VARIABLE, "")
    source = context.get_parameter_source(parameter.name or "")
    if context.resilient_parsing or not key or (source and source.name != "DEFAULT"):
        return account
    from trunkline.cli.exits import print_error

    try:
        return _find_key_account(key) or account
    except ConfigurationError as error:
        raise typer.Exit(print_error(error)) from None


def _find_key_account(key: str) -> str | None:
    """Return the account of an API key, or None if the mesh of these settings has no keys.

    Raises:
        ConfigurationError: `api_keys_file` can't be read, or the key is not among its keys.
    """
    # Only a command with a key needs the bridge's file of keys.
    from trunkline_bridge.callers.api_keys import hash_key, load_keys

    path = load_command_settings(uses={"api_keys_file"}).api_keys_file
    if path is None:
        return None
    digest = hash_key(key)
    for entry in load_keys(path):
        if entry.sha256 == digest:
            return entry.account
    problem = f"{_KEY_VARIABLE} is none of the keys in {path}; name the account of its tasks"
    raise ConfigurationError("--account", problem)


AccountOption = Annotated[
    str,
    option(
        "NAME",
        f"The account of the tasks; with {_KEY_VARIABLE}, the account of the key.",
        "--account",
        callback=_choose_account,
        show_default=True,
    ),
]
AgentOption = Annotated[
    str | None, option("NAME", "Ask this agent instead of the default one.", "--agent")
]
FilesOption = Annotated[list[str] | None, option("PATH", "Also send this file or URL.")]
SaveOption = Annotated[Path | None, option("DIR", "Save the answer's files there.")]
TimeoutOption = Annotated[
    float | None, option("S", "End the task after S seconds.", "--timeout", min=0.001)
]
MeshOption = Annotated[
    str | None, option("HOST:PORT[,…]", "The mesh's gRPC address. [TRUNKLINE_MESH]", "--mesh")
]

DataOption = Annotated[
    Path | None, option("DIR", "The data directory. [default: .trunkline]", "--data")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshCall:
    """The options of a command that calls a mesh for an account."""

    mesh: MeshOption = None
    account: AccountOption = ANONYMOUS_ACCOUNT
    json: JsonOption = False


TaskIdArgument = Annotated[str, argument("ID", "The task.")]
ApprovalIdArgument = Annotated[str, argument("ID", "The id that `trunkline approvals` shows.")]


def load_command_settings(
    flags: Mapping[str, object] | None = None, *, uses: Collection[str] | None
) -> "Settings":
    """Load the settings of a command other than `up` and `serve`.

    If the user has not trusted the current folder, only harmless settings of its `trunkline.toml`
    apply. A line on stderr names the other settings that the command `uses`. With None as
    `uses`, the command uses all settings.

    Raises:
        ConfigurationError: the settings are invalid.
    """
    from trunkline.core.settings import load_settings

    def report(ignored: "IgnoredSettings") -> None:
        names = [name for name in ignored.names if uses is None or name.partition(".")[0] in uses]
        if names:
            print_stderr(_describe(replace(ignored, names=tuple(names))))

    return load_settings(flags, report_ignored=report)


def _describe(ignored: "IgnoredSettings") -> str:
    reason = "it has changed since you trusted it" if ignored.has_changed else "it is not trusted"
    return (
        f"ignored {', '.join(ignored.names)} of {ignored.file.resolve()}: {reason}; "
        "read it, then `trunkline trust` makes these settings apply"
    )


def is_mesh_named(url: str | None) -> bool:
    """Return True if the flag or the environment names the URL of a mesh."""
    return url is not None or bool(os.environ.get(_URL_VARIABLE))


def resolve_base_url(url: str | None) -> str:
    """Return the URL from the flag or the environment, else the address in the settings.

    Raises:
        ConfigurationError: it is not an HTTP URL, or the settings are invalid.
    """
    source = "--url"
    if not is_mesh_named(url):
        settings = load_command_settings(uses={"http", "tls"})
        return f"{'https' if settings.tls.certificate else 'http'}://{settings.http}"
    if url is None:
        source, url = _URL_VARIABLE, os.environ[_URL_VARIABLE]
    try:
        parts = urlsplit(url)
        # `port` raises ValueError if it is not a port number.
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        problem = f"{url!r} is not a URL that starts with http:// or https://"
        raise ConfigurationError(where=source, problem=problem)
    return url.rstrip("/")


def resolve_api_key(flag: str | None) -> str:
    """Return the key from the flag or the environment, or "" for an anonymous caller."""
    return flag if flag is not None else os.environ.get(_KEY_VARIABLE, "")


def build_agent_url(base: str, agent: str | None) -> str:
    """Return the URL of an agent of a mesh. Without a name, it is the default agent's: the base."""
    return f"{base}/agents/{agent}" if agent else base


AUDIT_SETTINGS = frozenset(
    {
        "audit",
        "audit_age_s",
        "audit_file",
        "audit_files",
        "audit_size_bytes",
        "data_dir",
        "store",
    }
)
"""The settings that a command needs for recording an act."""

# What a command needs to know of the mesh that it calls.
_MESH_SETTINGS = frozenset(
    {
        "mesh",
        "identity_folder",
        "identity_certificate",
        "identity_key",
        "identity_roots",
        "identity_roles",
    }
)


def resolve_mesh_settings(mesh: str | None, *, uses: Collection[str] = ()) -> "Settings":
    """Return the settings of a mesh's client: the mesh of the flag, else of the settings.

    `uses` are further settings that the command uses.

    Raises:
        ConfigurationError: it is not HOST:PORT, its port is 0, or the settings are invalid.
    """
    settings = load_command_settings({"mesh": mesh}, uses={*_MESH_SETTINGS, *uses})
    if any(each.port == 0 for each in settings.mesh.registries):
        problem = f"{settings.mesh} is where a mesh picks a port; give the one that it printed"
        raise ConfigurationError(where="--mesh", problem=problem)
    return settings
