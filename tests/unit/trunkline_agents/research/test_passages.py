"""Sections are split into passages of bounded length, and no text is lost."""

from hypothesis import given
from hypothesis import strategies as st

from trunkline_agents.research.documents.passages import (
    PASSAGE_CHARS,
    SearchHit,
    Section,
    split_passages,
)


def test_short_paragraphs_stay_together_with_their_position() -> None:
    section = Section("one\n\ntwo", ("A", "B"), page=3, line=7)

    (passage,) = split_passages([section])

    assert (passage.text, passage.headings) == ("one\n\ntwo", ("A", "B"))
    assert (passage.page, passage.line) == (3, 7)


def test_a_long_section_is_split_at_blank_lines_with_line_numbers() -> None:
    paragraph = "word " * 160
    section = Section(f"{paragraph}\n\n\n{paragraph}\n\n{paragraph}", line=10)

    assert [passage.line for passage in split_passages([section])] == [10, 13, 15]


def test_passages_end_with_their_section() -> None:
    passages = list(split_passages([Section("one", ("A",)), Section("two", ("B",))]))

    assert [(passage.text, passage.headings) for passage in passages] == [
        ("one", ("A",)),
        ("two", ("B",)),
    ]


def test_a_long_paragraph_is_split_between_sentences() -> None:
    text = " ".join(f"This is sentence number {number}." for number in range(100))

    passages = [passage.text for passage in split_passages([Section(text)])]

    assert len(passages) > 1
    assert all(passage.endswith(".") for passage in passages)
    assert " ".join(passages) == text


@given(st.text(alphabet=st.sampled_from("ab. \n"), max_size=5000))
def test_no_passage_is_too_long_and_every_character_is_in_one(text: str) -> None:
    passages = [passage.text for passage in split_passages([Section(text, line=1)])]

    assert all(0 < len(passage) <= PASSAGE_CHARS for passage in passages)
    assert "".join("".join(passages).split()) == "".join(text.split())


def test_a_position_is_formatted_for_people() -> None:
    def format_place(headings: tuple[str, ...], page: int | None, line: int | None) -> str:
        return SearchHit("t", "n", "/n", "text", headings, page, line, 1.0).place

    assert format_place((), 4, None) == "page 4"
    assert format_place(("A", "B"), None, 12) == 'section "B", line 12'
    assert format_place((), None, None) == ""
