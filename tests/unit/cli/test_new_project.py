"""`trunkline new agent` refuses invalid names and non-empty folders."""

from pathlib import Path

import pytest

from trunkline.cli.commands.new import create_project
from trunkline.errors import ConfigurationError


@pytest.mark.parametrize(
    "name",
    [
        "a.b",
        "a_",
        "_a",
        "9a",
        "ä",
        "a-",
        "class",
        "echo",
        "supervisor",
        "json",
        "tests",
        "hatchling",
    ],
)
def test_an_invalid_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_project(name, tmp_path / "new", langgraph=False)
    assert caught.value.where == f"agent {name!r}"
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    with pytest.raises(ConfigurationError, match="not an empty folder"):
        create_project("hello-there", tmp_path, langgraph=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
