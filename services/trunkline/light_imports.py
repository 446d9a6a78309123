"""Imports of libraries without parts of their dependencies that take long and that no mesh uses.

They are a third of the time that LangGraph takes to load, for which the first answer waits.
"""

import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

# The command line of httpx, which loads rich. httpx works without it.
_LEFT_OUT: Final = ("httpx._main",)
# Some 400 generated models of an API, of which langsmith uses one.
_DEFERRED: Final = ("langsmith.types",)


@contextmanager
def light_imports() -> Iterator[None]:
    """Make the imports of LangGraph in a block faster.

    Modules that these imports leave out can be imported after the block. Modules that were
    imported before are not affected.
    """
    with leave_out(*_LEFT_OUT):
        for name in _DEFERRED:
            defer_package(name)
        yield


@contextmanager
def leave_out(*names: str) -> Iterator[None]:
    """Make imports of these modules fail in a block, unless they have been imported before it."""
    left_out = [name for name in names if name not in sys.modules]
    for name in left_out:
        # Python then raises ImportError for the module, as if it were not installed.
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in left_out:
            sys.modules.pop(name, None)


def defer_package(name: str) -> None:
    """Delay a package's `__init__` until an attribute of it is used that is not a module.

    Its modules can be imported before that. A missing or already imported package is left alone.
    """
    if name in sys.modules:
        return
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    vars(package)["__getattr__"] = _AttributeLoader(package).load
    sys.modules[name] = package


class _AttributeLoader:
    """Runs the `__init__` of a package at the first attribute that it lacks."""

    def __init__(self, package: ModuleType) -> None:
        self._package = package
        # The `__init__` asks for attributes, too, while it runs.
        self._lock = threading.RLock()
        self._is_loaded = False

    def load(self, name: str) -> object:
        package = self._package
        with self._lock:
            if not self._is_loaded:
                self._is_loaded = True
                if package.__spec__ is not None and package.__spec__.loader is not None:
                    package.__spec__.loader.exec_module(package)
        try:
            return vars(package)[name]
        except KeyError:
            problem = f"module {package.__name__!r} has no attribute {name!r}"
            raise AttributeError(problem) from None
