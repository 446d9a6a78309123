"""`trunkline workflow validate`, `show`, `diff` and `export`."""

import json
from pathlib import Path

import jsonschema
import pytest

from harness.workflows.files import PARALLEL, REVIEW
from trunkline.cli.commands.config import print_schema
from trunkline.cli.commands.workflow import (
    diff_files,
    export_workflow,
    show_workflow,
    validate_files,
)
from trunkline.cli.exits import ExitCode
from trunkline.errors import InvalidArgumentError


@pytest.fixture
def review(tmp_path: Path) -> Path:
    file = tmp_path / "review.yaml"
    file.write_text(REVIEW)
    return file


def test_faults_are_printed_with_file_and_line(
    review: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(REVIEW.replace("to: score", "to: scor"))
    assert validate_files([review, wrong]) == ExitCode.FAILED
    printed = capsys.readouterr()
    assert f"ok  {review}\n" in printed.out
    assert f"{wrong}:26:19: edges[1].to: there is no node 'scor'; did you mean" in printed.out
    assert "names of agents were not checked; give --mesh" in printed.err
    assert validate_files([wrong], json=True) == ExitCode.FAILED
    report = json.loads(capsys.readouterr().out)[str(wrong)]
    assert report["valid"] is False
    assert report["faults"][0]["line"] == 26
    assert validate_files([review]) == ExitCode.OK


def test_a_missing_file_is_a_fault_beside_those_of_the_others(
    review: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nosuch.yaml"
    assert validate_files([missing, review]) == ExitCode.FAILED
    printed = capsys.readouterr().out
    assert f"{missing}:1:1: can't be read: No such file" in printed
    assert f"ok  {review}\n" in printed


def test_show_prints_mermaid_and_writes_an_svg(
    review: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_workflow(str(review), visited="start,draft", failed="score")
    printed = capsys.readouterr().out
    assert printed.startswith("flowchart TD\n")
    assert "class n2 failed" in printed
    svg = tmp_path / "review.svg"
    show_workflow(str(review), svg=svg)
    assert svg.read_text().startswith("<svg ")
    # An installed workflow has a name.
    show_workflow("direct-broadcast")
    assert "assign<br/>action send" in capsys.readouterr().out
    with pytest.raises(InvalidArgumentError, match="no node 'nosuch'"):
        show_workflow(str(review), visited="nosuch")


def test_an_export_is_the_same_workflow(
    review: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file_format in ("yaml", "json"):
        export_workflow(str(review), file_format=file_format)
        exported = tmp_path / f"exported.{file_format}"
        exported.write_text(capsys.readouterr().out)
        assert diff_files(review, exported) == ExitCode.OK
        assert capsys.readouterr().out == ""
    review.write_text(REVIEW.replace("version: 2", "version: 3"))
    assert diff_files(exported, review) == ExitCode.FAILED
    assert capsys.readouterr().out == "~ version: 2 -> 3\n"


def test_the_schema_for_editors_takes_what_is_valid(
    review: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_schema("workflow")
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for text in (REVIEW, PARALLEL):
        review.write_text(text)
        export_workflow(str(review), file_format="json")
        value = json.loads(capsys.readouterr().out)
        assert list(validator.iter_errors(value)) == []
        del value["nodes"][0]["type"]
        assert list(validator.iter_errors(value))
