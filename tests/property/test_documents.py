"""Reading any bytes returns text with valid positions, or an error with a reason."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from trunkline_agents.research.documents.formats import (
    DocumentText,
    UnreadableFileError,
    read_markdown,
    read_text,
)
from trunkline_agents.research.documents.html import read_html
from trunkline_agents.research.documents.passages import PASSAGE_CHARS, split_passages

MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# A",
            "## B ##",
            "#C",
            "A",
            "===",
            "---",
            "```",
            "~~~~",
            "",
            " ",
            "title: T",
            "...",
            "- x",
        ]
    )
).map("\n".join)
HTML = st.lists(
    st.sampled_from(
        [
            *("<h1>", "</h1>", "<h2", ">", "<script>", "</script>", "<nav>", "</nav>", "<!--"),
            *("-->", "<title>", "</title>", "&#0;", "&amp", "<p>", "text", "<", "</", "<?", "\n"),
            "<![CDATA[",
        ]
    )
).map("".join)


def check_and_list_lines(document: DocumentText) -> list[int | None]:
    passages = list(split_passages(document.sections))
    assert all(0 < len(passage.text) <= PASSAGE_CHARS for passage in passages)
    return [passage.line for passage in passages]


@given(MARKDOWN)
def test_each_passage_of_markdown_begins_on_its_line(text: str) -> None:
    lines = text.split("\n")

    for passage in split_passages(read_markdown(text.encode()).sections):
        assert passage.line is not None
        line = lines[passage.line - 1].rstrip()
        # A heading without text below it becomes text, without its marks.
        assert passage.text.split("\n")[0] in (line, line.strip("# "))


@given(HTML)
def test_any_html_is_parsed(text: str) -> None:
    assert set(check_and_list_lines(read_html(text.encode()))) <= {None}


@given(st.binary())
def test_any_bytes_are_parsed_or_refused(content: bytes) -> None:
    for parse in (read_text, read_markdown, read_html):
        with contextlib.suppress(UnreadableFileError):
            assert all(line is None or line >= 1 for line in check_and_list_lines(parse(content)))
