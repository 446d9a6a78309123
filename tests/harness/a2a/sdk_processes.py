"""Third-party A2A clients, each in its own process, driven by lines of JSON."""

import asyncio
import fcntl
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from harness.mesh.processes import running_process
from trunkline.mesh.client import run_in_background

PATIENCE_S = 300.0

_ROOT = Path(__file__).parents[3]
_CLIENTS = _ROOT / "tests/partners"
_ENVIRONMENT = _ROOT / ".venv-partners"
Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A third-party client, and the program that drives it."""

    name: str
    version: str
    """The version of A2A."""
    command: Sequence[str]
    folder: str = ""
    """The folder of its packages, if the command needs it."""
    lacks: frozenset[str] = frozenset()
    """Calls that its SDK does not have."""


_JS = str(_ENVIRONMENT / "bin/node")
# In its own environment, because one environment can't have two versions of a package.
PYTHON_V0_3 = str(_ENVIRONMENT / "bin/python")
KINDS = (
    Kind("a2a-sdk 1.3.0", "1.0", (sys.executable, "-m", "partners.client_v1_0")),
    Kind(
        "@a2a-js/sdk 1.3.0",
        "1.0",
        (_JS, str(_CLIENTS / "client_v1_0.mjs")),
        folder=str(_ENVIRONMENT / "js-1.0"),
    ),
    Kind(
        "a2a-sdk 0.3.26",
        "0.3",
        (PYTHON_V0_3, "-m", "partners.client_v0_3"),
        lacks=frozenset({"list", "list_push", "delete_push"}),
    ),
    Kind(
        "@a2a-js/sdk 0.3.14",
        "0.3",
        (_JS, str(_CLIENTS / "client_v0_3.mjs")),
        folder=str(_ENVIRONMENT / "js-0.3"),
        lacks=frozenset({"list"}),
    ),
)


class PartnerError(Exception):
    """An error that the client's SDK raised, with its class name and text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


@dataclass(slots=True)
class Partner:
    """A running client."""

    kind: Kind
    _process: asyncio.subprocess.Process
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)
    _answers: dict[int, "asyncio.Queue[Json]"] = field(default_factory=dict)

    async def call(self, name: str, **arguments: Any) -> Any:
        """Return the result of a call. Raises PartnerError."""
        answers = self._ask(name, arguments)
        return _result(await _next(answers))

    async def events(self, name: str, **arguments: Any) -> AsyncIterator[Json]:
        """Yield the events of a call, to its end. Raises PartnerError."""
        answers = self._ask(name, arguments)
        while "event" in (answer := await _next(answers)):
            yield answer["event"]
        _result(answer)

    async def listen(self) -> None:
        """Pass the client's lines to the calls that they answer, until its process ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            self._answers[answer["id"]].put_nowait(answer)
        ended = {"error": {"name": "Gone", "text": "the client's process has ended"}}
        for answers in self._answers.values():
            answers.put_nowait(ended)

    def _ask(self, name: str, arguments: Json) -> "asyncio.Queue[Json]":
        assert self._process.stdin is not None
        number = next(self._ids)
        # Unbounded, because a test reads every answer.
        answers = self._answers[number] = asyncio.Queue()
        request = {"id": number, "call": name, "args": arguments}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return answers


@asynccontextmanager
async def running_partner(kind: Kind, url: str, key: str) -> AsyncIterator[Partner]:
    """Run a client for the length of a block; call `make_environment` before."""
    environment = {
        "PYTHONPATH": str(_ROOT / "tests"),
        "PARTNER_FOLDER": kind.folder,
        "NO_PROXY": "127.0.0.1",
    }
    async with running_process(
        *kind.command, url, key, cwd=_ROOT, environment=environment, stdin=asyncio.subprocess.PIPE
    ) as process:
        partner = Partner(kind, process)
        async with run_in_background(partner.listen()):
            yield partner


def make_environment() -> None:
    """Install the clients, once for all concurrent test workers."""
    with (Path(sys.prefix) / ".partners-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([str(_ROOT / "scripts/partners")], check=True)


async def _next(answers: "asyncio.Queue[Json]") -> Json:
    async with asyncio.timeout(PATIENCE_S):
        return await answers.get()


def _result(answer: Json) -> Any:
    if "error" in answer:
        raise PartnerError(**answer["error"])
    return answer["result"]
