"""The stderr of a server: secrets and paths are removed, and the tail is bounded."""

import pytest

from trunkline.tools.stderr_tail import STDERR_LINE_LIMIT_BYTES, StderrTail


@pytest.mark.parametrize(
    ("lines", "tail"),
    [
        ([], ""),
        (
            ["a server", "", "}", "~~~", "  at x (y.js)", "Traceback (most recent call last):"],
            "a server",
        ),
        (["one", "two", "three", "four"], "two | three | four"),
        (["\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x08tail\r"], "red  tail"),
        (
            ["no /srv/shop/a.py, see https://example.org/a/b/c"],
            "no a.py, see https://example.org/a/b/c",
        ),
        (["key abcd-efgh-ijkl, abcd-efgh"], "key [hidden], [hidden]"),
        (["BEGIN", "first line of it"], "BEGIN | [hidden] of it"),
        (["so 1"], "so 1"),
    ],
    ids=["nothing", "no information", "many", "escapes", "paths", "secrets", "lines", "short"],
)
def test_the_last_informative_lines_are_returned(lines: list[str], tail: str) -> None:
    stderr = StderrTail(["abcd-efgh", "abcd-efgh-ijkl", "first line\nsecond line", "1"])
    for line in lines:
        stderr.add_line(line.encode())
    assert stderr.last_lines() == tail


def test_the_tail_is_bounded_and_contains_no_part_of_a_secret() -> None:
    secret = "k" * 2000
    stderr = StderrTail([secret])
    logged = stderr.add_line(b"x" * 450 + secret.encode() + b"y" * 500)
    assert logged == ("x" * 450 + "[hidden]" + "y" * 500)[:500]
    assert "k" not in stderr.last_lines()
    assert len(stderr.last_lines()) == 300
    assert (
        stderr.add_line(b"x" * (STDERR_LINE_LIMIT_BYTES - 5) + secret.encode()) == "[a long line]"
    )
    for _ in range(3):
        stderr.add_line(b"word " * 100)
    assert len(stderr.last_lines()) == 300
