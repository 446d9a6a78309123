"""Keeps the tester's own environment and machine out of the tests."""

import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from blockbuster import BlockBuster, BlockBusterFunction
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# To collect the tests makes millions of objects, which live to the end. Garbage collections on the
# way would take half of that time, and each later one would visit them all again.
gc.disable()

_HERE = Path(__file__).parent
# Tests mostly wait for processes, but more workers would only compete for processors.
_WORKERS_PER_PROCESSOR = 3
_MOST_WORKERS = 8
# The folders with the longest files start first, so that short ones fill the end.
_LONGEST_FIRST = ("promises", "integration", "property")

# Variables of the developer's environment must not change a test, nor send its spans anywhere.
_STRAY_PREFIXES = ("TRUNKLINE_", "OTEL_", "LANGSMITH_", "LANGCHAIN_")
for _name in [name for name in os.environ if name.startswith(_STRAY_PREFIXES)]:
    del os.environ[_name]
# Child processes inherit it too, because no test may use the network.
os.environ["LANGSMITH_TRACING"] = "false"
# Without cached bytecode, hundreds of processes spend a third of their time on compiling imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tests trust folders, and must not change the developer's own state.
_STATE = tempfile.TemporaryDirectory(prefix="trunkline-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name
# The meshes of a run share a root, because to make one takes a fifth of a second. It is the root of
# meshes whose port the system chose: tests that make their own settings use such meshes.
os.environ["TRUNKLINE_IDENTITY_FOLDER"] = f"{_STATE.name}/trunkline/meshes/temporary-0"
# A shell starts background jobs with SIGINT ignored, and child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# jsonschema loads this parser of URIs, which a tool for bills of materials brings: two seconds for
# each worker. No test checks a format.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# In its debug mode, asyncio warns of steps that a busy machine makes slow.
logging.getLogger("asyncio").setLevel(logging.ERROR)
# A busy machine makes an example slow, not wrong.
for _profile, _examples in (("trunkline", 50), ("prove", 500)):
    hypothesis_settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
hypothesis_settings.load_profile("trunkline")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the promise tests; `make prove` uses --prove."""
    group = parser.getgroup("promises")
    group.addoption("--prove", action="store_true", help="run promise tests at full size")
    group.addoption("--rounds", type=int, help="rounds of proofs that kill at each of many points")
    group.addoption("--faults", type=int, help="the faults of each proof of machines that fail")
    group.addoption("--messages", type=int, help="the messages of each proof of messages")
    group.addoption("--seed", type=int, help="repeat a promise test with the seed it printed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of parallel workers in `make test`."""
    return min(_MOST_WORKERS, _WORKERS_PER_PROCESSOR * (os.cpu_count() or 1))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests of a parallel run; workers get files in this order."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_rank)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what was collected out of all garbage collections of the tests."""
    gc.freeze()
    gc.enable()


def _rank(item: pytest.Item) -> int:
    folder = item.path.relative_to(_HERE).parts[0]
    return _LONGEST_FIRST.index(folder) if folder in _LONGEST_FIRST else len(_LONGEST_FIRST)


# Calls that may wait for another process or thread. Local files and SQLite are not among them: a
# journal commits on the loop, because a commit costs less than a thread switch (design, 5).
_WAITING_CALLS = ("time.", "socket.", "ssl.", "builtins.input")
# Functions that block on purpose, with the reason.
_MAY_BLOCK = {
    # A takeover kills the frozen owner and waits for its end; hosts call it in a thread.
    "trunkline/journal/sqlite/store.py": {"_remove_holder"},
    # A local socket accepts or refuses at once.
    "trunkline/mesh/server/mesh_server.py": {"_find_socket_problem"},
    # The clock of a test stops the process.
    "unit/tasks/test_deadlines.py": {"now"},
    # An agent of a test blocks the loop past its lease.
    "unit/tasks/test_journal_lease.py": {"busy"},
}


@cache
def _waiting_functions() -> list[BlockBusterFunction]:
    """Return the detectors of waiting calls. To make them takes longer than a short test."""
    detector = BlockBuster(["trunkline", "trunkline_bridge", "trunkline_agents"])
    waiting = [
        function for name, function in detector.functions.items() if name.startswith(_WAITING_CALLS)
    ]
    for function in waiting:
        for path, functions in _MAY_BLOCK.items():
            function.can_block_in(path, functions)
    return waiting


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[None]:
    """Fail a test in which our code blocks the event loop."""
    for function in _waiting_functions():
        function.activate()
    yield
    for function in _waiting_functions():
        function.deactivate()
