"""The start of a command: Ctrl-C ends it without a traceback."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

import trunkline
from trunkline.cli.entry import main


def test_ctrl_c_while_a_command_starts_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "set_threshold", interrupt)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130


def test_nothing_slow_is_imported_before_ctrl_c_is_handled() -> None:
    services = Path(trunkline.__file__).parents[1]
    probe = (
        f"import os, sys; sys.path.insert(0, {str(services)!r}); before = set(sys.modules); "
        "import trunkline.cli; print(*sorted(set(sys.modules) - before))"
    )
    # -S: `site` may import anything for the installed packages.
    command = [sys.executable, "-S", "-c", probe]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.split() == ["gc", "trunkline", "trunkline.cli", "trunkline.cli.entry"]
