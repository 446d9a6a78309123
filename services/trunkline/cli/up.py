"""`trunkline up`: a whole mesh in this process, until it is told to stop."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping

from trunkline.cli.outcome import Exit
from trunkline.cli.terminal import print_json
from trunkline.logs import configure_logging
from trunkline.mesh import Mesh, open_mesh
from trunkline.settings import load_settings

logger = logging.getLogger(__name__)


async def up(flags: Mapping[str, object], *, is_attached: bool, as_json: bool) -> Exit:
    """Bring a mesh up, print where it serves, and drain it on SIGTERM or Ctrl-C.

    A second signal ends the process at once. If attached, it also stops when stdin ends: whoever
    started it holds the other end, and may be killed.

    Raises:
        ConfigurationError: a setting is wrong, or an address can't be used.
    """
    settings = load_settings(flags)
    configure_logging(level=settings.log_level, form=settings.log_format)
    stop = _Stop()
    if is_attached:
        stop.on_end_of(sys.stdin.fileno())
    try:
        async with open_mesh(settings) as mesh:
            stop.is_up = True
            if not stop.asked.is_set():
                _tell(mesh, as_json=as_json)
            await stop.asked.wait()
    except (asyncio.CancelledError, Exception) as error:
        # Told to stop before it was up: what it was in the middle of matters no more.
        if stop.is_up or not stop.asked.is_set():
            raise
        logger.debug("mesh.start_interrupted", exc_info=error)
    return Exit.OK


def _tell(mesh: Mesh, *, as_json: bool) -> None:
    ready = {"http": mesh.http_url, "mesh": mesh.mesh_address}
    if as_json:
        print_json(ready)
    else:
        print("ready", *(f"{name}={value}" for name, value in ready.items()), flush=True)


class _Stop:
    """The signals that ask this process to stop."""

    def __init__(self) -> None:
        self.is_up = False
        self.asked = asyncio.Event()
        self._work = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ask)

    def on_end_of(self, pipe: int) -> None:
        """Stop when a pipe ends."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            if not os.read(pipe, 4096):
                loop.remove_reader(pipe)
                self._ask()

        loop.add_reader(pipe, read)

    def _ask(self) -> None:
        if self.asked.is_set():
            os._exit(Exit.FAILED)
        self.asked.set()
        if not self.is_up and self._work is not None:
            self._work.cancel()
