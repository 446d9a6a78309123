"""Runs a command of `trunkline a2a`: parses, configures, and reports the failure."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from trunkline.cli.a2a_cli.configuration import ConfigurationSources
from trunkline.cli.a2a_cli.console import Console, DebugLog
from trunkline.cli.a2a_cli.failures import CommandError, StandardExit, to_failure, usage
from trunkline.cli.a2a_cli.options import BY_KEY, OPTIONS
from trunkline.cli.a2a_cli.parser import HelpRequest, parse_arguments
from trunkline.cli.a2a_cli.session import CommandContext
from trunkline.cli.exits import ExitCode, discard_stdout
from trunkline.cli.terminal import is_text

_INSECURE: Final = (
    "SECURITY WARNING: TLS certificates are not verified (--insecure); anyone in between can read "
    "what is sent, credentials included"
)
_VERSION_FLAGS: Final = frozenset({"-v", "--version"})


def main(argv: Sequence[str]) -> int:
    """Run a command in this process; return its exit code."""
    console = Console.standard()
    try:
        return asyncio.run(run(argv, console))
    except KeyboardInterrupt:
        return ExitCode.CANCELED
    except BrokenPipeError:
        discard_stdout()
        return StandardExit.FAILED


async def run(argv: Sequence[str], console: Console) -> int:
    """Run a command; return its exit code. A failure is printed as the output format wants it."""
    is_json = _wants_json(argv, console)
    try:
        if not all(map(is_text, argv)):
            raise usage("an argument is not UTF-8 text")
        if len(argv) == 1 and argv[0] in _VERSION_FLAGS:
            console.write_text(f"{_version()}\n")
            return StandardExit.OK
        sources = ConfigurationSources(console.environment, console.folder, _config_file(argv))
        is_json = is_json or _wants_json_by_file(argv, sources)
        for warning in sources.warnings:
            console.warn(warning)
        command = parse_arguments(argv, _effective(sources))
        if command.wants_version:
            console.write_text(f"{_version()}\n")
            return StandardExit.OK
        configuration = sources.resolve(command.flags)
        is_json = configuration.is_json
        console.add_secrets(configuration.secrets)
        if configuration.get("insecure"):
            console.warn(_INSECURE)
        context = CommandContext(console, configuration, sources, DebugLog(console))
        if command.command.run is not None:
            await command.command.run(context, **command.arguments)
    except HelpRequest as request:
        console.write_text(request.text)
        return StandardExit.OK
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  every failure is reported in the same form
        return _report(error, console, is_json=is_json, is_debug="--debug" in argv)
    return StandardExit.OK


def _report(error: Exception, console: Console, *, is_json: bool, is_debug: bool) -> int:
    """Print a failure: as JSON to stdout, where the result would be, else to stderr."""
    failure = to_failure(error)
    failure.message = console.redact(failure.message)
    if is_debug and not isinstance(error, CommandError):
        import traceback

        console.warn("".join(traceback.format_exception(error)))
    if is_json:
        console.write_json(failure.to_json())
    else:
        console.warn(f"Error: {failure.code}")
        console.warn(f"Message: {' '.join(failure.message.split())}")
        if failure.hint:
            console.warn(f"Hint: {failure.hint}")
    return failure.exit_code


def _effective(sources: ConfigurationSources) -> Mapping[str, str]:
    """Return the configured values that help shows instead of the built-in defaults."""
    shown = {}
    for option in OPTIONS:
        try:
            found = sources.find(option)
        except CommandError:
            # Help must work with a bad value, which the command itself reports.
            continue
        if found is not None:
            text = "set" if option.is_secret or option.key == "svc_param" else found.text
            shown[option.key] = f"{text}, from {found.source}"
    return shown


def _flag_text(argv: Sequence[str], *names: str) -> str:
    """Return the value of a flag before the arguments are parsed; empty: it is not there."""
    for number, argument in enumerate(argv):
        for name in names:
            if argument == name and number + 1 < len(argv):
                return argv[number + 1]
            if argument.startswith(f"{name}="):
                return argument.partition("=")[2]
    return ""


def _config_file(argv: Sequence[str]) -> Path | None:
    text = _flag_text(argv, "--config")
    return Path(text).expanduser() if text else None


def _wants_json(argv: Sequence[str], console: Console) -> bool:
    """Return whether failures before the configuration is known are to be printed as JSON."""
    flag = _flag_text(argv, "-o", "--output") or ("json" if "-ojson" in argv else "")
    return (flag or console.environment.get("A2ACLI_OUTPUT", "")) == "json"


def _wants_json_by_file(argv: Sequence[str], sources: ConfigurationSources) -> bool:
    if _flag_text(argv, "-o", "--output") or "-otext" in argv:
        return False
    try:
        found = sources.find(BY_KEY["output"])
    except CommandError:
        return False
    return found is not None and found.value == "json"


def _version() -> str:
    from importlib import metadata

    return metadata.version("trunkline")
