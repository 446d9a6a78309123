"""Serves a web application on a real socket in its own thread, for fixtures of any scope."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette

_PATIENCE_S = 300.0


@contextmanager
def serving(app: Starlette, name: str, **config: Any) -> Iterator[int]:
    """Serve it for the length of a block, and yield its port; `config` is for uvicorn."""
    server = uvicorn.Server(
        uvicorn.Config(app, "127.0.0.1", 0, log_config=None, lifespan="off", ws="none", **config)
    )
    thread = threading.Thread(target=server.run, name=name, daemon=True)
    thread.start()
    end = time.monotonic() + _PATIENCE_S
    while not server.started:
        assert thread.is_alive(), f"{name} does not start"
        assert time.monotonic() < end, f"{name} does not start"
        time.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(_PATIENCE_S)
