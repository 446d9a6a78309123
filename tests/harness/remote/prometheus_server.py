"""A real Prometheus of `.venv-partners`, which tests start, and its query API."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import yaml

from harness.a2a.sdk_processes import make_environment
from harness.mesh.processes import free_address, running_process
from harness.polling import poll

PROGRAMS: Final = Path(__file__).parents[3] / ".venv-partners/bin"


class Prometheus:
    """A server that scrapes."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression at this moment."""
        return list((await self.get("/api/v1/query", query=expression))["result"])

    async def wait_for(
        self, expression: str, is_wanted: Callable[[list[dict[str, Any]]], bool] = bool
    ) -> list[dict[str, Any]]:
        """Return the series of an expression, once they are as wanted."""
        return await poll(lambda: self.query(expression), is_wanted)

    async def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a response of the API."""
        response = await self._client.get(path, params=parameters)
        body = json.loads(response.text)
        assert body["status"] == "success", body
        return body["data"]


@asynccontextmanager
async def running_prometheus(
    folder: Path, jobs: Mapping[str, str], *, token: str = "", rules: tuple[Path, ...] = ()
) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that scrapes the address of each job every 200 ms."""
    make_environment()
    file = _write_configuration(folder, jobs, token, rules)
    address = free_address()
    command = (
        str(PROGRAMS / "prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    )
    async with (
        running_process(*command, cwd=folder),
        httpx2.AsyncClient(base_url=f"http://{address}", trust_env=False) as client,
    ):

        async def is_ready() -> bool:
            try:
                return (await client.get("/-/ready")).status_code == httpx2.codes.OK
            except httpx2.TransportError:
                return False

        await poll(is_ready)
        yield Prometheus(client)


def _write_configuration(
    folder: Path, jobs: Mapping[str, str], token: str, rules: tuple[Path, ...]
) -> Path:
    scrapes = [
        {
            "job_name": name,
            "static_configs": [{"targets": [address.removeprefix("http://")]}],
            **({"authorization": {"credentials": token}} if token else {}),
        }
        for name, address in jobs.items()
    ]
    configuration = {
        "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
        "scrape_configs": scrapes,
        "rule_files": [str(path) for path in rules],
    }
    folder.mkdir(parents=True)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    return file
