import os
import sys
from pathlib import Path

import pytest

from trunkline.tools.server_process import build_environment


def test_our_interpreters_folder_comes_first_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/somewhere")
    folder = str(Path(sys.executable).parent)
    assert build_environment({}, {})["PATH"] == f"{folder}{os.pathsep}/somewhere"


def test_what_the_entry_sets_wins_and_nothing_else_of_ours_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("SECRET_TOKEN", "made up")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("HOME", "/home")
    given = build_environment(
        {"OTEL_SERVICE_NAME": "mine", "PATH": "/bin"}, {"OTEL_SERVICE_NAME": "mcp-a"}
    )
    assert given == {
        "LANG": "C",
        "LC_ALL": "C",
        "HOME": "/home",
        "PATH": "/bin",
        "OTEL_SERVICE_NAME": "mine",
    }
