"""YAML and JSON as workflows read them: plain values with places, within limits."""

import json

import pytest

from trunkline.core.source_documents import MAX_BYTES, parse_document


def read(text: str, file: str = "w.yaml") -> object:
    document = parse_document(text.encode(), file)
    assert document.faults == []
    return document.value


def fault_of(content: bytes, file: str = "w.yaml") -> tuple[int, str]:
    document = parse_document(content, file)
    assert document.faults, document.value
    return document.faults[0].line, document.faults[0].problem


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "[yes, no, on, true, null, ~, 1, -2, 1.5, 1e3, 2026-01-01, '1', 0x10, 1:30, .5]"
    assert read(text) == [
        *("yes", "no", "on", True, None, None, 1, -2, 1.5, 1000.0),
        *("2026-01-01", "1", "0x10", "1:30", 0.5),
    ]


def test_json_keeps_its_values_and_places() -> None:
    value: dict[str, object] = {
        "a": [1, "x\ty", {"b": None}],
        "emoji": "😀",
        "slash": "a/b",
        "back": "\\\\ud83d \ud800",
        "f": 1.5,
        "t": True,
    }
    text = json.dumps(value, indent="\t").replace("a/b", "a\\/b")
    document = parse_document(text.encode(), "w.json")
    value["back"] = "\\\\ud83d \ufffd"
    assert (document.value, document.faults) == (value, [])
    assert document.locate(("a", 2, "b")).line == 6
    assert document.locate(("a", 2, "nosuch")).line == 5


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ((), 1),
        (("a",), 2),
        (("a", 1), 3),
        (("a", 7), 2),
        (("b", "c", "d"), 5),
        (("b", "nothing"), 4),
        (("b", "c", "d", "e"), 5),
        (("nothing",), 1),
    ],
)
def test_the_line_of_a_value_is_known(keys: tuple[str | int, ...], line: int) -> None:
    text = '{\n "a": [{"b": "c:]"},\n 2],\n "b": {"a": {},\n "c": {"d": true}}}'
    assert parse_document(text.encode(), "servers", is_json=True).locate(keys).line == line


def test_numbers_of_json_are_exact() -> None:
    assert read('{"id": 123456789012345678901234567890}', "w.json") == {
        "id": 123456789012345678901234567890
    }


def test_anchors_are_expanded() -> None:
    assert read("a: &x {b: [1, 2]}\nc: *x\n") == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"a: 1\n\tb: 2\n", 2, "tab"),
        (b"a: [1, 2\nb: 3\n", 2, "is not YAML"),
        (b"a: 1\nb: \xff\n", 2, "is not UTF-8"),
        (b"a: 1\na: 2\n", 2, "is there twice, first in line 1"),
        (b"a: *x\n", 1, "no anchor &x"),
        (b"a: &x [*x]\n", 1, "no anchor &x"),
        (b"a: 1\n---\nb: 2\n", 2, "several documents"),
        (b"? [a]\n: 1\n", 1, "a key that is no text"),
        (b"a: \x00\n", 1, "is not YAML"),
        (b"[" * 100, 1, "nested deeper"),
        (b"a" * (MAX_BYTES + 1), 1, "is larger than 256 KiB"),
    ],
)
def test_faults_of_syntax_have_their_line(content: bytes, line: int, problem: str) -> None:
    found_line, found = fault_of(content)
    assert problem in found
    assert found_line == line


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b'{\n"a": 1,\n}', 3, "is not JSON"),
        (b'{"a": NaN}', 1, "NaN is no number of JSON"),
        (b'{"a": 1,\n"a": 2}', 2, "is there twice"),
        (b"[" * 100_000, 1, "nested deeper"),
        (b"{" + b'"a":{' * 50 + b"}" * 51, 1, "nested deeper"),
    ],
)
def test_faults_of_json_have_their_line(content: bytes, line: int, problem: str) -> None:
    found_line, found = fault_of(content, "w.json")
    assert problem in found
    assert found_line == line


def test_no_python_object_is_made() -> None:
    assert read("a: !!python/object/apply:os.system [ls]\nb: !x 1") == {"a": ["ls"], "b": 1}


def test_a_bomb_of_anchors_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for number in range(1, 10):
        items = ", ".join([f"*a{number - 1}"] * 9)
        lines.append(f"a{number}: &a{number} [{items}]")
    _, problem = fault_of("\n".join(lines).encode())
    assert "more than 20,000 values" in problem


def test_anchors_do_not_nest_deeper_than_values() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{number}: &a{number} [*a{number - 1}]" for number in range(1, 60)]
    assert "nested deeper" in fault_of("\n".join(lines).encode())[1]
