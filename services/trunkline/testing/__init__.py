"""What tests of agents need: a mesh of their own, and a model that says what it is told.

    from trunkline.testing import async_test, mesh

    @async_test
    async def test_it_greets():
        async with mesh(hello) as m:
            answer = await m.ask("Ada")
        assert answer.state == "completed"
        assert answer.text == "Hello, Ada!"

It works under any test runner; nothing needs to be installed beside Trunkline. The mesh is a real
one (journal, leases, gRPC) in a temporary folder, without a port: it takes some 50 ms.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.testing.answer import Answer
    from trunkline.testing.asking import Mesh, mesh
    from trunkline.testing.runner import async_test
    from trunkline.testing.scripted_model import Call, ScriptedModel
    from trunkline.testing.stream import Stream

__all__ = ["Answer", "Call", "Mesh", "ScriptedModel", "Stream", "async_test", "mesh"]

# Loaded when they are asked for: LangChain only for whoever scripts a model.
_HOMES = {
    "Answer": "trunkline.testing.answer",
    "Call": "trunkline.testing.scripted_model",
    "Mesh": "trunkline.testing.asking",
    "ScriptedModel": "trunkline.testing.scripted_model",
    "Stream": "trunkline.testing.stream",
    "async_test": "trunkline.testing.runner",
    "mesh": "trunkline.testing.asking",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Before gRPC is loaded: it would tell people about every connection that is closed.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    return getattr(import_module(_HOMES[name]), name)
