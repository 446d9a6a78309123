"""Imports without slow parts: what they leave out, and that it can be used afterwards."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.core.light_imports import defer_package

# Modules that no earlier test of the process has imported.
_PROGRAM = """
import sys
from trunkline.core.light_imports import light_imports
with light_imports():
    import trunkline.agents.reasoning.graph
from trunkline.agents.reasoning import open_model
open_model("openai:m"), open_model("google:m")
providers = "langchain_openai langchain_anthropic langchain_google_genai langchain_ollama"
providers += " openai anthropic google.genai ollama"
# A provider's package is loaded at the first request.
assert not [name for name in providers.split() if name in sys.modules]
assert "rich" not in sys.modules
assert "httpx._main" not in sys.modules
assert "langsmith.types.agent" not in sys.modules
from langsmith import Client
from langsmith.types import Agent
import httpx._main
assert Agent.__module__ == "langsmith.types.agent" and httpx._main.main and Client
"""


def test_langgraph_loads_without_its_slow_parts_and_they_are_there_later() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "deferred_example"
    folder.mkdir()
    (folder / "__init__.py").write_text("from .left import LEFT\nRIGHT = 2\n")
    (folder / "left.py").write_text("LEFT = 1\n")
    (folder / "other.py").write_text("OTHER = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def test_a_module_of_a_deferred_package_runs_no_init(package: str) -> None:
    defer_package(package)

    assert importlib.import_module(f"{package}.other").OTHER == 3
    assert "deferred_example.left" not in sys.modules


def test_the_first_attribute_of_a_deferred_package_runs_its_init(package: str) -> None:
    defer_package(package)
    loaded = importlib.import_module(package)

    assert (loaded.LEFT, loaded.RIGHT) == (1, 2)


def test_a_deferred_package_lacks_what_its_init_does_not_define(package: str) -> None:
    defer_package(package)
    loaded = importlib.import_module(package)

    with pytest.raises(AttributeError, match="'deferred_example' has no attribute 'missing'"):
        _ = loaded.missing
    assert loaded.RIGHT == 2


@pytest.mark.parametrize("name", ["no_such_package", "no_such_package.types", "sys"])
def test_nothing_is_deferred_if_there_is_nothing_to_defer(name: str) -> None:
    before = sys.modules.get(name)

    defer_package(name)

    assert sys.modules.get(name) is before
