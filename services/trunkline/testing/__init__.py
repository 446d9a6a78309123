"""What tests of agents need: a mesh of their own, and a model that says what it is told.

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
('completed', 'Hello, Ada!')

It works under any test runner; nothing needs to be installed beside Trunkline. The mesh is a real
one (journal, leases, gRPC) in a temporary folder, without a port: it takes some 50 ms. `help` of
each of these says more:

- `mesh(agent, …)` opens a `Mesh` for a block: ask its agents, stream, look at tasks, cancel them.
- `Answer` is what came of a turn: its state, text, artifacts, tools and approvals.
- `Stream` is a turn while it runs.
- `ScriptedModel` reasons as a test tells it, with a `Call` for each call of a tool.
- `@async_test` lets runners that know no coroutines run one as a test.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.testing.local_mesh import Mesh, async_test, mesh
    from trunkline.testing.results import Answer, Stream
    from trunkline.testing.scripted_model import Call, ScriptedModel

__all__ = ["Answer", "Call", "Mesh", "ScriptedModel", "Stream", "async_test", "mesh"]

# Loaded when they are asked for: LangChain only for whoever scripts a model.
_HOMES = {
    "Answer": "trunkline.testing.results",
    "Call": "trunkline.testing.scripted_model",
    "Mesh": "trunkline.testing.local_mesh",
    "ScriptedModel": "trunkline.testing.scripted_model",
    "Stream": "trunkline.testing.results",
    "async_test": "trunkline.testing.local_mesh",
    "mesh": "trunkline.testing.local_mesh",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Before gRPC is loaded: it would tell people about every connection that is closed.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    return getattr(import_module(_HOMES[name]), name)
