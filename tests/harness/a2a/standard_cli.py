"""Runs commands of `trunkline a2a` in this process, on streams of their own."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from trunkline.cli.a2a_cli.console import Console
from trunkline.cli.a2a_cli.program import run

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class StandardResult:
    """The result of a command."""

    exit: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The only document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Json]:
        """Stdout as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Json:
        """The error object."""
        document = self.lines[-1]
        assert set(document) == {"error"}, document
        error: Json = document["error"]
        assert set(error) == {"code", "message", "hint", "a2aCode"}
        return error

    def field(self, label: str) -> str:
        """The last value of a field in text."""
        return self.fields(label)[-1]

    def fields(self, label: str) -> list[str]:
        """All values of a field in text."""
        mark = f"{label}: "
        return [line.removeprefix(mark) for line in self.out.splitlines() if line.startswith(mark)]


class _Input(io.StringIO):
    """Stdin, which may be a terminal."""

    is_terminal = False

    def isatty(self) -> bool:
        return self.is_terminal


@dataclass(frozen=True, slots=True)
class StandardCli:
    """The command line with a home and a working folder."""

    home: Path
    arguments: Sequence[str] = ()
    """Added to every command."""
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The working folder."""
        return self.home / "work"

    def at(self, agent: str, *arguments: str, **variables: str) -> "StandardCli":
        """Return the command line for an agent, with these arguments for every command."""
        return replace(self, arguments=("--agent-card", agent, *arguments), variables=variables)

    async def run(
        self, *words: str, stdin: str = "", is_terminal: bool = False, **environment: str
    ) -> StandardResult:
        """Run a command."""
        self.folder.mkdir(exist_ok=True)
        source, out, err = _Input(stdin), io.StringIO(), io.StringIO()
        source.is_terminal = is_terminal
        variables = {"HOME": str(self.home), **self.variables, **environment}
        console = Console(source, out, err, variables, self.folder)
        code = await run([*words, *self.arguments], console)
        result = StandardResult(code, out.getvalue(), err.getvalue())
        assert "\x1b" not in result.out
        assert "Traceback" not in result.err
        return result
