"""A real Arize Phoenix of `.venv-partners`, which takes traces over OTLP, and its API of spans."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from harness.a2a.sdk_processes import make_environment
from harness.mesh.processes import ProcessEndedError, free_address, running_process
from harness.polling import poll

PROGRAM: Final = Path(__file__).parents[3] / ".venv-partners/phoenix/bin/phoenix"
# The one that spans without a project are in.
_PROJECT: Final = "default"
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Phoenix:
    """A server that takes traces."""

    otlp_grpc: str
    """The URL of OTLP over gRPC."""
    http: str
    """The URL of its page, its API, and OTLP over HTTP."""
    _client: httpx2.AsyncClient

    async def spans(self, trace_id: str) -> list[dict[str, Any]]:
        """Return the spans of a trace."""
        response = await self._client.get(
            f"/v1/projects/{_PROJECT}/spans", params={"trace_id": trace_id, "limit": _PAGE}
        )
        assert response.status_code == httpx2.codes.OK, response.text
        body = json.loads(response.text)
        assert body["next_cursor"] is None, "more than one page"
        return list(body["data"])


@asynccontextmanager
async def running_phoenix(folder: Path) -> AsyncIterator[Phoenix]:
    """Run a Phoenix with its data below a folder for the length of a block."""
    make_environment()
    http, grpc = free_address(), free_address()
    environment = _environment(folder, http, grpc)
    # It logs each request, which would fill a pipe without a reader.
    with (folder / "phoenix.log").open("wb") as log:
        async with (
            running_process(
                str(PROGRAM), "serve", cwd=folder, environment=environment, stdout=log, stderr=log
            ) as process,
            httpx2.AsyncClient(base_url=f"http://{http}", trust_env=False, timeout=60) as client,
        ):

            async def is_ready() -> bool:
                if process.returncode is not None:
                    raise ProcessEndedError((folder / "phoenix.log").read_text())
                try:
                    return (await client.get("/readyz")).status_code == httpx2.codes.OK
                except httpx2.TransportError:
                    return False

            await poll(is_ready)
            yield Phoenix(f"http://{grpc}", f"http://{http}", client)


def _environment(folder: Path, http: str, grpc: str) -> dict[str, str]:
    folder.mkdir(parents=True)
    host, _, port = http.partition(":")
    return {
        "HOME": str(folder),
        "PHOENIX_WORKING_DIR": str(folder / "data"),
        "PHOENIX_HOST": host,
        "PHOENIX_PORT": port,
        "PHOENIX_GRPC_PORT": grpc.partition(":")[2],
        # Without calls to other machines.
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
