"""Texts of agents in commands to copy, and secrets in the diagnostics of `trunkline a2a`."""

import io
import os
import shlex
from pathlib import Path

from trunkline.cli.a2a_cli.console import Console, DebugLog
from trunkline.cli.a2a_cli.text_format import resume_command

HOSTILE = "x; touch /tmp/owned"


def test_an_id_of_an_agent_is_one_word_of_the_commands_to_copy() -> None:
    for state in ("TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"):
        line = resume_command("https://a.example", HOSTILE, HOSTILE, state)
        assert HOSTILE in shlex.split(line)
    assert resume_command("https://a.example", "t", "", "TASK_STATE_COMPLETED") == ""
    # A command that only listens knows no agent.
    assert resume_command("", "t", "c", "TASK_STATE_WORKING") == ""


def test_diagnostics_have_no_tokens_and_no_secrets_in_any_form() -> None:
    written = io.StringIO()
    console = Console(io.StringIO(), io.StringIO(), written, os.environ, Path())
    console.add_secrets(["key+with/special="])
    log = DebugLog(console)
    log.data(b'{"access_token": "fresh-token", "refresh_token":"another", "scope": "read"}')
    log.request("POST https://a.example/token?key=key%2Bwith%2Fspecial%3D", {}, b"")
    assert '"scope": "read"' in written.getvalue()
    for secret in ("fresh-token", "another", "special"):
        assert secret not in written.getvalue()
