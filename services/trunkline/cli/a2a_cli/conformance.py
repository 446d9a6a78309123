"""`conformance`: runs A2A's Technology Compatibility Kit (TCK) against an agent."""

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from trunkline.cli.a2a_cli.failures import CommandError, LocalCode, usage
from trunkline.cli.a2a_cli.output import ResultPrinter
from trunkline.cli.a2a_cli.session import CommandContext, open_session
from trunkline.cli.options import option

_SCRIPT: Final = "run_tck.py"
_HINT: Final = (
    "clone the branch for A2A 1.0 of github.com/a2aproject/a2a-tck, run `uv sync` there, and give "
    "it by --tck"
)
_HOST_FLAG: Final = "--sut-host"


class Level(StrEnum):
    """The levels of requirements that the TCK checks."""

    MUST = "must"
    SHOULD = "should"
    MAY = "may"


async def check_agent(
    context: CommandContext,
    *,
    tck: Annotated[str, option("DIR", "A checkout of the TCK.")] = "",
    level: Annotated[Level, option("LEVEL", "must, should or may.", show_default=True)] = (
        Level.MUST
    ),
) -> None:
    """Check an agent with A2A's TCK. The output of the TCK goes to stderr.

    Raises:
        CommandError: there is no TCK, or a test fails.
    """
    folder = tck or context.console.environment.get("A2ACLI_TCK", "")
    if not folder:
        raise usage("the TCK is not installed here", _HINT)
    script = (context.console.folder / folder).expanduser() / _SCRIPT
    if not script.is_file():
        raise usage(f"--tck: {script} does not exist", _HINT)
    if _HOST_FLAG not in await asyncio.to_thread(script.read_text, "utf-8"):
        raise usage(f"--tck: {script} is not the TCK for A2A 1.0", _HINT)
    async with open_session(context) as session:
        origin = session.card.url.partition("/.well-known/")[0] or session.interface.url
    arguments = (str(script), _HOST_FLAG, origin, "--level", level)
    context.note(f"running {' '.join(arguments)}")
    process = await asyncio.create_subprocess_exec(
        _python_of(script.parent),
        *arguments,
        cwd=script.parent,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(context.options.timeout):
            output, _ = await process.communicate()
    except TimeoutError:
        raise CommandError(LocalCode.TIMEOUT, "the TCK has not ended in time") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    context.console.warn(output.decode("utf-8", "replace").rstrip("\n"))
    if process.returncode:
        raise CommandError(
            LocalCode.INTERNAL,
            f"the TCK found failures at level {level} (exit {process.returncode})",
            "its report is on stderr",
        )
    fields: list[tuple[str, object]] = [
        ("Agent", origin),
        ("Level", level),
        ("Conformance", "passed"),
    ]
    ResultPrinter(context).fields({"agent": origin, "level": level, "passed": True}, fields)


def _python_of(folder: Path) -> str:
    """Return the interpreter of the TCK's own environment, else ours."""
    own = folder / ".venv/bin/python"
    return str(own) if own.exists() else sys.executable
