"""The public names of `import trunkline`, and the cost of the import."""

import subprocess
import sys
from importlib import metadata

import trunkline


def test_every_public_name_exists_and_no_other() -> None:
    names = [name for name in trunkline.__all__ if name != "__version__"]
    assert sorted(trunkline._MODULES) == names == sorted(names)
    for name in names:
        # A union, such as that of the events of a stream, has no name of its own.
        assert getattr(getattr(trunkline, name), "__name__", name) == name


def test_the_package_has_its_version() -> None:
    assert trunkline.__version__ == metadata.version("trunkline")


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(trunkline, "nothing")


def test_importing_the_package_loads_no_submodule() -> None:
    script = "import sys, trunkline; print([m for m in sys.modules if m.startswith('trunkline.')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert loaded.stdout.strip() == b"[]"
