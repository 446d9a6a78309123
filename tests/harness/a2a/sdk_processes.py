"""Clients of other makers, each in a process of its own, driven by lines of JSON."""

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
from trunkline.client import run_in_background

PATIENCE_S = 60.0

_ROOT = Path(__file__).parents[3]
_CLIENTS = _ROOT / "tests/partners"
_ENVIRONMENT = _ROOT / ".venv-partners"
Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A maker's client: which program drives it, and by what."""

    name: str
    version: str
    """Of A2A."""
    command: Sequence[str]
    folder: str = ""
    """Where its packages are, if the command doesn't know."""
    lacks: frozenset[str] = frozenset()
    """Calls that its SDK hasn't."""


_JS = str(_ENVIRONMENT / "bin/node")
# Not installed in ours: two versions of one package can't be.
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
    """What a client's SDK raised: by its name there, and its text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


@dataclass(slots=True)
class Partner:
    """A client that runs."""

    kind: Kind
    _process: asyncio.subprocess.Process
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)
    _answers: dict[int, "asyncio.Queue[Json]"] = field(default_factory=dict)

    async def call(self, name: str, **arguments: Any) -> Any:
        """Return the result of a call. PartnerError: the SDK raised an error."""
        answers = self._ask(name, arguments)
        return _result(await _next(answers))

    async def events(self, name: str, **arguments: Any) -> AsyncIterator[Json]:
        """Yield the events of a call, to its end. PartnerError: the SDK raised an error."""
        answers = self._ask(name, arguments)
        while "event" in (answer := await _next(answers)):
            yield answer["event"]
        _result(answer)

    async def listen(self) -> None:
        """Hand out what the client says, until it ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            self._answers[answer["id"]].put_nowait(answer)
        gone = {"error": {"name": "Gone", "text": "the client's process has ended"}}
        for answers in self._answers.values():
            answers.put_nowait(gone)

    def _ask(self, name: str, arguments: Json) -> "asyncio.Queue[Json]":
        assert self._process.stdin is not None
        number = next(self._ids)
        # A test reads all that it asks for.
        answers = self._answers[number] = asyncio.Queue()
        asked = {"id": number, "call": name, "args": arguments}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        return answers


@asynccontextmanager
async def running_partner(kind: Kind, url: str, key: str) -> AsyncIterator[Partner]:
    """Run a client for the length of a block; its environment must have been made."""
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
    """Install the partners, once for all tests that run at the same time."""
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
