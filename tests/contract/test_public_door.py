"""What `import trunkline` gives, and what it costs."""

import subprocess
import sys
from importlib import metadata

import trunkline


def test_everything_the_door_names_is_there_and_nothing_else() -> None:
    names = [name for name in trunkline.__all__ if name != "__version__"]
    assert sorted(trunkline._MODULES) == names == sorted(names)
    for name in names:
        assert getattr(trunkline, name).__name__ == name


def test_the_door_names_its_version() -> None:
    assert trunkline.__version__ == metadata.version("trunkline")


def test_a_name_it_does_not_know_is_an_attribute_error() -> None:
    assert not hasattr(trunkline, "nothing")


def test_the_door_itself_loads_nothing() -> None:
    script = "import sys, trunkline; print([m for m in sys.modules if m.startswith('trunkline.')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert loaded.stdout.strip() == b"[]"
