"""What `import trunkline` gives, and what it costs."""

import subprocess
import sys

import trunkline


def test_everything_the_door_names_is_there_and_nothing_else() -> None:
    assert sorted(trunkline._HOMES) == trunkline.__all__ == sorted(trunkline.__all__)
    for name in trunkline.__all__:
        assert getattr(trunkline, name).__name__ == name


def test_a_name_it_does_not_know_is_an_attribute_error() -> None:
    assert not hasattr(trunkline, "nothing")


def test_the_door_itself_loads_nothing() -> None:
    script = "import sys, trunkline; print([m for m in sys.modules if m.startswith('trunkline.')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert loaded.stdout.strip() == b"[]"
