"""Whatever bytes a file holds, reading it gives text with places that are there, or a reason."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from trunkline_agents.research.documents.formats import (
    DocumentText,
    UnreadableFileError,
    read_html,
    read_markdown,
    read_text,
)
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


def lines_of(extract: DocumentText) -> list[int | None]:
    passages = list(split_passages(extract.sections))
    assert all(0 < len(one.text) <= PASSAGE_CHARS for one in passages)
    return [one.line for one in passages]


@given(MARKDOWN)
def test_each_passage_of_markdown_begins_in_the_line_that_it_says(text: str) -> None:
    lines = text.split("\n")

    for passage in split_passages(read_markdown(text.encode()).sections):
        assert passage.line is not None
        line = lines[passage.line - 1].rstrip()
        # A heading that nothing stands below is text, without its marks.
        assert passage.text.split("\n")[0] in (line, line.strip("# "))


@given(HTML)
def test_html_of_any_kind_is_read(text: str) -> None:
    assert set(lines_of(read_html(text.encode()))) <= {None}


@given(st.binary())
def test_bytes_of_any_kind_are_read_or_refused(content: bytes) -> None:
    for read in (read_text, read_markdown, read_html):
        with contextlib.suppress(UnreadableFileError):
            assert all(line is None or line >= 1 for line in lines_of(read(content)))
