"""`trunkline up`: a whole mesh in this process, until it is told to stop."""

import asyncio
import gc
import json
import os
import signal
from collections.abc import Mapping

from trunkline.cli.log import configure_logging
from trunkline.cli.outcome import Exit
from trunkline.mesh import Mesh
from trunkline.settings import check_exposure, load_settings

# What is alive once the mesh serves stays alive: collecting it again and again cost latency.
_COLLECTION_THRESHOLDS = (50_000, 20, 50)


async def up(flags: Mapping[str, object], *, as_json: bool) -> Exit:
    """Bring a mesh up, print where it serves, and drain it on SIGTERM or Ctrl-C.

    A second signal ends the process at once.

    Raises:
        ConfigurationError: a setting is wrong, or an address can't be used.
    """
    settings = load_settings(flags)
    configure_logging(level=settings.log_level, form=settings.log_format)
    check_exposure(settings)
    stop = _Stop()
    try:
        async with Mesh.open(settings) as mesh:
            _settle()
            ready = {"http": mesh.http_url, "mesh": mesh.mesh_address}
            line = "ready " + " ".join(f"{name}={value}" for name, value in ready.items())
            print(json.dumps(ready) if as_json else line, flush=True)
            await stop.wait_beside(mesh)
    except asyncio.CancelledError:
        # Told to stop before it was up.
        if not stop.is_asked:
            raise
    return Exit.OK


class _Stop:
    """The signals that ask this process to stop."""

    def __init__(self) -> None:
        self.is_asked = False
        self._work = asyncio.current_task()
        self._asked = asyncio.Event()
        self._is_up = False
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ask)

    async def wait_beside(self, mesh: Mesh) -> None:
        """Wait until a signal asks to stop, or the mesh stops by itself."""
        self._is_up = True
        async with asyncio.TaskGroup() as group:
            stopped = group.create_task(mesh.wait_stopped())
            stopped.add_done_callback(lambda _: self._asked.set())
            await self._asked.wait()
            stopped.cancel()

    def _ask(self) -> None:
        if self.is_asked:
            os._exit(Exit.FAILED)
        self.is_asked = True
        self._asked.set()
        if not self._is_up and self._work is not None:
            self._work.cancel()


def _settle() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
