"""What `trunkline new agent` refuses."""

from pathlib import Path

import pytest

from trunkline.cli.project import create_project
from trunkline.errors import ConfigurationError


@pytest.mark.parametrize(
    "name",
    ["Hello", "a_b", "9a", "ä", "a-", "class", "echo", "supervisor", "json", "tests", "hatchling"],
)
def test_a_name_that_can_be_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        create_project(name, tmp_path / "new", with_graph=False, as_json=False)
    assert raised.value.where == f"agent {name!r}"
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    with pytest.raises(ConfigurationError, match="not an empty folder"):
        create_project("hello-there", tmp_path, with_graph=False, as_json=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
