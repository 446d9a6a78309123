"""The log file of serving processes, and the command that shows it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.mesh.command_line import run_in_process
from trunkline.cli.log_file import LogFileHandler, LogQuery, follow_log
from trunkline.errors import InvalidArgumentError


@pytest.fixture
def log(tmp_path: Path) -> Iterator[logging.Logger]:
    """A logger that writes to the log file of a data directory."""
    logger = logging.getLogger("test.log_file")
    logger.setLevel(logging.DEBUG)
    handler = LogFileHandler(tmp_path / "private" / "log.jsonl", service="mesh")
    logger.addHandler(handler)
    handler.note("process.ready", http="http://127.0.0.1:1")
    yield logger
    logger.removeHandler(handler)
    handler.close()


def logs(folder: Path, *words: str) -> list[str]:
    return run_in_process("logs", "--data", str(folder), *words).out.splitlines()


def test_lines_are_stored_and_shown(log: logging.Logger, tmp_path: Path) -> None:
    log.warning("tool_server.failed", extra={"server": "math\x1b[2J"})
    log.debug("detail")
    ready, failed, detail = logs(tmp_path)
    assert "info    mesh process.ready http=http://127.0.0.1:1" in ready
    assert "warning mesh tool_server.failed server=math\\x1b[2J" in failed
    assert "debug   mesh detail" in detail
    assert "\x1b" not in failed
    (entry,) = [json.loads(line) for line in logs(tmp_path, "--level", "warning", "--json")]
    assert (entry["event"], entry["service"]) == ("tool_server.failed", "mesh")
    assert len(logs(tmp_path, "-n", "1")) == 1
    assert logs(tmp_path, "--since", "2999-01-01") == []


def test_an_exception_is_shown_in_indented_lines(log: logging.Logger, tmp_path: Path) -> None:
    try:
        raise ValueError("reason")
    except ValueError:
        log.exception("failed")
    lines = logs(tmp_path, "--level", "error")
    assert lines[0].endswith("error   mesh failed")
    assert lines[-1] == "    ValueError: reason"


def test_the_file_is_private(log: logging.Logger, tmp_path: Path) -> None:
    log.warning("x")
    assert (tmp_path / "private" / "log.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    handler = LogFileHandler(tmp_path / "file" / "private" / "log.jsonl", service="mesh")
    handler.note("process.ready")
    handler.close()
    assert (tmp_path / "file").read_text() == ""


def test_lines_are_selected_by_their_task_and_trace(log: logging.Logger, tmp_path: Path) -> None:
    log.warning("one", extra={"task_id": "t1", "trace_id": "a"})
    log.warning("two", extra={"task_id": "t2", "trace_id": "a"})
    log.warning("none")
    for option, value, events in (
        ("--task", "t2", ["two"]),
        ("--trace", "a", ["one", "two"]),
        ("--task", "t3", []),
    ):
        shown = run_in_process("logs", "--data", str(tmp_path), option, value, "--json")
        assert [json.loads(line)["event"] for line in shown.out.splitlines()] == events


def test_new_lines_are_followed(log: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "private" / "log.jsonl"
    log.warning("earlier")
    records = follow_log(path, LogQuery.parse(since="", level="warning"), lines=1)
    events = [next(records), next(records)]
    log.info("hidden")
    log.warning("later")
    events += [next(records), next(records)]
    named = [record and record.entry and record.entry["event"] for record in events]
    assert named == ["earlier", None, "later", None]


def test_wrong_options_and_a_missing_log_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no such level; there are: debug, info"):
        LogQuery.parse(since="", level="loud")
    failed = run_in_process("logs", "--data", str(tmp_path))
    assert failed.exit == 1
    assert "no mesh has logged here; start one with `trunkline up`" in failed.err
