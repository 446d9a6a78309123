"""A missing extra is named with the command that adds it to this environment."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from trunkline.core.settings import describe_install


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


def test_a_mesh_whose_extra_is_missing_says_at_the_start_what_to_install(tmp_path: Path) -> None:
    # The environment of the tests has all extras, so the process hides the package.
    program = """
        import sys
        from importlib.machinery import PathFinder

        class Hiding(PathFinder):
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                return None if name == "strawberry" else super().find_spec(name, path, target)

        sys.meta_path[:] = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
        from trunkline.cli import main
        sys.argv = ["trunkline", "up", "--http", "127.0.0.1:0", "--mesh", "127.0.0.1:0"]
        main()
        """
    (tmp_path / "trunkline.toml").write_text("[graphql]\nenabled = true\n")
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert "[graphql] enabled: GraphQL needs an extra; run " in ended.stderr
    assert "'trunkline[graphql]'" in ended.stderr
