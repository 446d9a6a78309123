"""Tools for tests of agents: a mesh for each test, and a chat model with scripted replies.

>>> import asyncio
>>> from trunkline import agent
>>> from trunkline.testing import mesh
>>> @agent(name="hello", description="Greets people by name.")
... async def hello(task):
...     return f"Hello, {task.text}!"
>>> async def greeted(name):
...     async with mesh(hello) as m:
...         return await m.ask(name)
>>> answer = asyncio.run(greeted("Ada"))
>>> answer.state, answer.text
(<TaskState.COMPLETED: 'completed'>, 'Hello, Ada!')

Works with any test runner and needs no other package. The mesh is complete (journal, leases, gRPC)
and uses a temporary folder instead of a port; it starts in about 50 ms. See `help` of each:

- `mesh(agent, …)` opens a `Mesh` for a block: ask its agents, stream, get and cancel tasks.
- `Answer` is the result of a turn: its state, text, artifacts, tools and approvals.
- `Stream` yields the events of a running turn.
- `ScriptedModel` is a chat model with scripted replies; a `Call` is a scripted tool call.
- `@async_test` turns a coroutine function into a plain test, for runners without asyncio support.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.testing.local_mesh import Mesh, async_test, mesh
    from trunkline.testing.results import Answer, Stream
    from trunkline.testing.scripted_model import Call, ScriptedModel

__all__ = ["Answer", "Call", "Mesh", "ScriptedModel", "Stream", "async_test", "mesh"]

# Imported on first use, so that only tests with a ScriptedModel need LangChain.
_MODULES = {
    "Answer": "trunkline.testing.results",
    "Call": "trunkline.testing.scripted_model",
    "Mesh": "trunkline.testing.local_mesh",
    "ScriptedModel": "trunkline.testing.scripted_model",
    "Stream": "trunkline.testing.results",
    "async_test": "trunkline.testing.local_mesh",
    "mesh": "trunkline.testing.local_mesh",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Set before gRPC is imported, which otherwise logs each connection that closes.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    return getattr(import_module(_MODULES[name]), name)
