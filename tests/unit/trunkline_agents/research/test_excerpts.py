"""An excerpt has what fits a question; lists and tables stay what they are."""

from trunkline_agents.research.documents.search import Term
from trunkline_agents.research.excerpts import extract_excerpt

LONG = " ".join(f"Sentence {number} is about nothing much at all." for number in range(20))


def test_an_excerpt_begins_with_the_most_relevant_sentence() -> None:
    text = f"{LONG} The cache keeps pages for ten minutes. {LONG}"

    excerpt = extract_excerpt(text, [Term("cache"), Term("minutes")])

    assert excerpt.startswith("… The cache keeps pages for ten minutes. Sentence 0")
    assert excerpt.endswith(" …")
    assert len(excerpt) < 450


def test_an_excerpt_has_the_short_beginning_of_its_paragraph() -> None:
    text = "One thing.\n\nMaria is the contact for payroll. Salaries are paid on the 25th.\n\nMore."

    assert extract_excerpt(text, [Term("salaries")]) == (
        "… Maria is the contact for payroll. Salaries are paid on the 25th. More."
    )


def test_a_short_text_is_quoted_completely_and_on_one_line() -> None:
    assert extract_excerpt("One.\n\nTwo\nlines.", [Term("two")]) == "… Two lines."
    assert extract_excerpt("One.\nTwo.", []) == "One. Two."
    assert extract_excerpt(" \n", [Term("x")]) == ""
    assert len(extract_excerpt("x" * 5000, [Term("x")])) < 450


def test_items_of_a_list_stay_on_lines_of_their_own() -> None:
    text = "Bring these:\n- a pen, which\n  writes\n* paper\n1. Not an item of its own? It is."

    assert extract_excerpt(text, [Term("paper")]) == (
        "Bring these:\n- a pen, which writes\n* paper\n1. Not an item of its own? It is."
    )
    assert extract_excerpt("First.\n\n- one\n- two", [Term("two")]) == "…\n- one\n- two"


def test_a_line_of_prose_that_begins_with_a_number_is_no_item() -> None:
    assert extract_excerpt("It ends on January\n31. Then it begins again.", []) == (
        "It ends on January 31. Then it begins again."
    )


def test_a_row_is_quoted_with_the_head_of_its_table() -> None:
    rows = [f"| Reason number {number:02} | {number} days |" for number in range(20)]
    table = "\n".join(
        ["| Reason            | Days      |", "|:------------------|----------:|", *rows]
    )

    excerpt = extract_excerpt(f"Before.\n\n{table}\n\nAfter.", [Term("17")])

    assert excerpt == (
        "…\n\n| Reason | Days |\n|:---|---:|\n| Reason number 17 | 17 days |\n"
        "| Reason number 18 | 18 days |\n| Reason number 19 | 19 days |\n\nAfter."
    )
    first = extract_excerpt(table, [Term("00")])
    assert first.startswith("\n\n| Reason | Days |\n|:---|---:|\n| Reason number 00 | 0 days |\n")
    assert first.endswith(" days |\n\n…")


def test_an_item_longer_than_an_excerpt_is_quoted_by_its_sentences() -> None:
    excerpt = extract_excerpt(f"- {LONG} The cache keeps pages. {LONG}", [Term("cache")])

    assert excerpt.startswith("… The cache keeps pages. Sentence 0")
