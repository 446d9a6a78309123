"""The services of `deploy/compose.yaml`, and their processes without containers.

The commands, variables and probes are those of the files. Ports become free ones of this machine,
names of services become its loopback address, and volumes become temporary folders.

0.0.0.0 stays 0.0.0.0: our commands refuse it without the options that allow it, and on loopback
nobody would notice that such an option is missing.
"""

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from harness.deploy.image import ROOT, Image, read_image
from harness.mesh.processes import ProcessEndedError, free_address, running_process

COMPOSE: Final = ROOT / "deploy/compose.yaml"
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104  as in the files
THIS_HOST: Final = "127.0.0.1"
ADDRESS: Final = re.compile(r"(?P<host>[A-Za-z][\w-]*|0\.0\.0\.0|127\.0\.0\.1):(?P<port>\d+)\b")
"""A host, which may be a service, and a port, in a text."""
_VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")


def read_services(variables: Mapping[str, str] = {}) -> dict[str, dict[str, Any]]:
    """Return the services of the compose file, with its variables replaced."""
    text = COMPOSE.read_text(encoding="utf-8")
    text = _VARIABLE.sub(lambda match: variables.get(match[1], match[2]), text)
    services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return services


def is_ours(service: Mapping[str, Any]) -> bool:
    """Return whether the service runs from our image."""
    return "build" in service


@dataclass
class Composition:
    """The services, as processes of this machine with their files below a folder."""

    folder: Path
    services: dict[str, dict[str, Any]]
    image: Image = field(default_factory=read_image)
    _addresses: dict[tuple[str, int], str] = field(default_factory=dict)
    _processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    @property
    def ours(self) -> list[str]:
        """The names of the services that run from our image."""
        return [name for name, service in self.services.items() if is_ours(service)]

    def address(self, service: str, port: int) -> str:
        """Return the address at which others reach a port of a service."""
        if (service, port) not in self._addresses:
            free = free_address(EVERYWHERE)
            self._addresses[service, port] = free.replace(EVERYWHERE, THIS_HOST)
        return self._addresses[service, port]

    def set_address(self, service: str, port: int, address: str) -> None:
        """Set the address that stands for a port of a service."""
        self._addresses[service, port] = address.removeprefix("http://")

    def published(self, service: str, port: int) -> str:
        """Return the address of a port that a service publishes."""
        words = (str(word).rsplit(":", 1) for word in self.services[service]["ports"])
        assert str(port) in {inside for _, inside in words}
        return self.address(service, port)

    def translate(self, service: str, text: str) -> str:
        """Replace the addresses and folders in a text of a service."""

        def replace(match: re.Match[str]) -> str:
            host, port = match["host"], int(match["port"])
            if host == EVERYWHERE:
                return self.address(service, port).replace(THIS_HOST, EVERYWHERE)
            if host == THIS_HOST:
                return self.address(service, port)
            return self.address(host, port) if host in self.services else match[0]

        text = ADDRESS.sub(replace, text)
        for inside, outside in self._mounts(service).items():
            text = re.sub(rf"(?<![\w.]){re.escape(inside)}(?=/|$)", str(outside), text)
        return text

    def environment(self, service: str) -> dict[str, str]:
        """Return the variables of a service."""
        variables = {**self.image.environment, **self.services[service].get("environment", {})}
        # The interpreter of the tests stands for that of the image.
        del variables["PATH"]
        # HOME alone says where the user's state is.
        translated = {name: self.translate(service, value) for name, value in variables.items()}
        return {**translated, "XDG_STATE_HOME": ""}

    def command(self, service: str) -> list[str]:
        """Return the command of a service of ours."""
        words = self.services[service].get("command", self.image.command)
        return self._run(service, [*self.image.entrypoint, *words])

    def probe(self, service: str) -> list[str]:
        """Return the command of the health check of a service of ours."""
        check = self.services[service].get("healthcheck")
        if check is None:
            return self._run(service, self.image.healthcheck)
        kind, *words = check["test"]
        assert kind == "CMD"
        return self._run(service, words)

    @asynccontextmanager
    async def running(self, extra: Mapping[str, str]) -> AsyncIterator[None]:
        """Run our services for the length of a block, with some more variables."""
        async with AsyncExitStack() as stack:
            for name in self.ours:
                folder = self.current_folder(name)
                folder.mkdir(parents=True)
                environment = {**self.environment(name), **extra}
                self._processes[name] = await stack.enter_async_context(
                    running_process(*self.command(name), cwd=folder, environment=environment)
                )
            try:
                yield
            finally:
                # All at once. The registry gets the others' spans, so it is last.
                for name, process in self._processes.items():
                    if name != "registry" and process.returncode is None:
                        process.terminate()

    def process_id(self, service: str) -> int:
        """Return the process of a service of ours that runs."""
        return self._processes[service].pid

    def check_running(self) -> None:
        """Raise an error if a service of ours has ended."""
        for name, process in self._processes.items():
            if process.returncode is not None:
                raise ProcessEndedError(f"{name} ended with {process.returncode}")

    def current_folder(self, service: str) -> Path:
        """Return the folder in which a service runs."""
        return self.folder / "current" / service

    def copy_mounts(self, service: str) -> None:
        """Copy what a service mounts from `deploy/`, with the addresses in it replaced."""
        for inside, outside in self._mounts(service).items():
            source = self._source(service, inside)
            if source is None:
                outside.mkdir(parents=True, exist_ok=True)
                continue
            shutil.copytree(source, outside)
            for file in (path for path in outside.rglob("*") if path.is_file()):
                text = file.read_text(encoding="utf-8")
                file.write_text(self.translate(service, text), encoding="utf-8")

    def mount(self, service: str, inside: str) -> Path:
        """Return the folder that stands for a folder of a service."""
        return self._mounts(service)[inside]

    def _run(self, service: str, words: Sequence[str]) -> list[str]:
        program, *arguments = words
        # Those of the environment of the tests.
        path = {"python": sys.executable}.get(program, str(Path(sys.executable).parent / program))
        return [path, *(self.translate(service, word) for word in arguments)]

    def _mounts(self, service: str) -> dict[str, Path]:
        mounts = {}
        for line in self.services[service].get("volumes", ()):
            source, inside, *_ = line.split(":")
            name = inside.strip("/") if source.startswith(".") else source
            mounts[inside] = (
                self.folder / ("mounts" if source.startswith(".") else "volumes") / name
            )
        return mounts

    def _source(self, service: str, inside: str) -> Path | None:
        for line in self.services[service]["volumes"]:
            source, target, *_ = str(line).split(":")
            if target == inside and source.startswith("."):
                return COMPOSE.parent / source
        return None
