"""What a server says on stderr may be logged, and its end says why it died."""

import pytest

from trunkline.tools.links.last_words import LINE_BYTES, LastWords


@pytest.mark.parametrize(
    ("lines", "said"),
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
    ids=["nothing", "what says nothing", "many", "escapes", "places", "secrets", "lines", "short"],
)
def test_the_last_lines_that_say_something_are_kept(lines: list[str], said: str) -> None:
    words = LastWords(["abcd-efgh", "abcd-efgh-ijkl", "first line\nsecond line", "1"])
    for line in lines:
        words.hear(line.encode())
    assert words.said() == said


def test_what_is_passed_on_is_bounded_and_holds_no_half_of_a_secret() -> None:
    secret = "k" * 2000
    words = LastWords([secret])
    logged = words.hear(b"x" * 450 + secret.encode() + b"y" * 500)
    assert logged == ("x" * 450 + "[hidden]" + "y" * 500)[:500]
    assert "k" not in words.said()
    assert len(words.said()) == 300
    assert words.hear(b"x" * (LINE_BYTES - 5) + secret.encode()) == "[a long line]"
    for _ in range(3):
        words.hear(b"word " * 100)
    assert len(words.said()) == 300
