"""A missing extra is named with the command that adds it to this environment."""

import sys
from pathlib import Path

import pytest

from trunkline.settings import describe_install


def test_the_command_is_that_of_the_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests' environment is made by uv, or by pip.
    assert describe_install("openai") in (
        "`uv pip install 'trunkline[openai]'`",
        "`pip install 'trunkline[openai]'`",
    )
    # An environment of `uv tool` has no pip, and what `uv pip` adds to it is lost.
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "uv-receipt.toml").touch()
    assert describe_install("embeddings", "openai") == (
        "`uv tool install 'trunkline[embeddings,openai]'`"
    )
