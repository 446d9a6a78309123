"""Files are parsed into sections, and a hostile file harms only the worker process."""

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader, PdfWriter

from harness.pdf import pdf, with_contents
from trunkline_agents.research.documents import formats, html
from trunkline_agents.research.documents.formats import (
    DocumentText,
    UnreadableFileError,
    guess_media_type,
    read_markdown,
    read_text,
)
from trunkline_agents.research.documents.html import read_html
from trunkline_agents.research.documents.reader import DocumentReader

HANDBOOK = """---
title: "The handbook"
tags: [a]
---
Before all.

# Working here #

Hello.

## Leave
28 days.

```
# not a heading
```

Travel
======
By train.

---
A rule is above.
"""


@pytest.fixture(scope="module")
def reader() -> Iterator[DocumentReader]:
    with DocumentReader() as opened:
        yield opened


def read(reader: DocumentReader, folder: Path, name: str, content: bytes) -> DocumentText:
    path = folder / name
    path.write_bytes(content)
    return reader.read(path, guess_media_type(path) or "text/plain")


def outline(document: DocumentText) -> list[tuple[tuple[str, ...], int | None, str]]:
    return [
        (section.headings, section.line, section.text.split("\n")[0])
        for section in document.sections
    ]


def test_headings_without_text_become_text(reader: DocumentReader, tmp_path: Path) -> None:
    markdown = b"# Plan\n## First\nTea.\n## Second\n\n\nThird\n-----\n# \n# End\n"
    document = read(reader, tmp_path, "plan.md", markdown)
    assert outline(document) == [
        (("Plan", "First"), 3, "Tea."),
        (("Plan", "Second"), 4, "Second"),
        (("Plan", "Third"), 7, "Third"),
        (("End",), 10, "End"),
    ]
    page = b"<h1>Only</h1><h2>Head<b>ings</b></h2><h2> </h2>"
    document = read(reader, tmp_path, "page.html", page)
    assert outline(document) == [(("Only", "Headings"), None, "Headings")]
    assert document.title == "Only"


def test_markdown_is_split_at_its_headings_with_line_numbers() -> None:
    document = read_markdown(HANDBOOK.encode())

    assert document.title == "The handbook"
    assert outline(document) == [
        ((), 5, "Before all."),
        (("Working here",), 8, ""),
        (("Working here", "Leave"), 12, "28 days."),
        (("Travel",), 20, "By train."),
    ]
    assert "# not a heading" in document.sections[2].text
    assert "A rule is above." in document.sections[3].text


def test_without_front_matter_the_first_heading_is_the_title() -> None:
    assert read_markdown(b"# One\n\ntext\n\n# Two\n\nmore").title == "One"
    assert read_markdown(b"---\nno end of front matter\n").title == ""


def test_html_is_split_at_its_headings_without_scripts_and_menus() -> None:
    page = b"""<html><head><title>Release &amp; notes</title><style>p {}</style></head><body>
      <nav>Home <a>About</a></nav><script>steal("<h1>no</h1>")</script>
      <h1>Version <b>2</b></h1><p>The cache is <i>fast</i>.<ul><li>one<li>two</ul>
      <h2>Fixes</h2>None.<h1>Version 1</h1>Old."""

    document = read_html(page)

    assert document.title == "Release & notes"
    assert [(section.headings, section.text) for section in document.sections] == [
        (("Version 2",), "The cache is fast.\n\none\ntwo"),
        (("Version 2", "Fixes"), "None."),
        (("Version 1",), "Old."),
    ]
    assert {section.line for section in document.sections} == {None}


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a<!-- <p>x --> b", "a b"),
        ("a<!--> b", "a b"),
        ("a<!-- b", "a"),
        ("<!doctype html>a<?php x ?> b", "a b"),
        ("1 < 2 &amp; 3 > 2", "1 < 2 & 3 > 2"),
        ("""<a title="x > y" b='>' c=d>link</a>""", "link"),
        ("<a href=x>a</a >b</ >c", "abc"),
        ("<SCRIPT>if (a<b) '</div>'</Script >after", "after"),
        ("<script/>a", "a"),
        ("a<br/>b", "a\nb"),
        ("<textarea><p>kept</textarea>", "<p>kept"),
        ("a<b", "a"),
        ("a <b c='x", "a"),
        ("&#00000065;&#x00000041;&#" + "0" * 6000 + "66;&#00c", "AAB\ufffdc"),
        ("&#65;&#" + "9" * 6000 + ";&unknown;&", "A\ufffd&unknown;&"),
    ],
)
def test_the_text_of_html_is_what_a_browser_shows(page: str, text: str) -> None:
    assert [section.text for section in read_html(page.encode()).sections] == [text]


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "<!--",
            "<!",
            "<?",
            "<",
            "</",
            "<a ",
            "<a b='",
            "<a b=",
            '<a b="c" ',
            "<script>",
            "<nav>",
        ),
        *("<title>", "<p", "&#1", "&a", "<h1>", "<br/>", "</p>", "<!-- -->", "<h1>a</h1>", "-->"),
    ],
)
def test_hostile_html_is_read_only_once(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = piece.encode() * (30_000 // len(piece))
    read_chars = 0

    def count(find_end: Callable[..., int]) -> Callable[..., int]:
        def find_and_count(*args: Any) -> int:
            nonlocal read_chars
            end = find_end(*args)
            read_chars += end - args[-1]
            return end

        return find_and_count

    for name in ("_find_tag_end", "_find_closing_tag", "_find_end"):
        monkeypatch.setattr(html, name, count(getattr(html, name)))
    with suppress(UnreadableFileError):
        read_html(page)
    # _find_tag_end uses _find_end. Quadratic time reads a page thousands of times.
    assert read_chars <= 2 * len(page)


def test_a_document_of_too_many_sections_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "SECTION_LIMIT", 100)
    with pytest.raises(UnreadableFileError, match="too many sections"):
        read_markdown(b"# a\nb\n" * 101)


def test_html_with_too_much_markup_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_TOKEN_LIMIT", 100)
    with pytest.raises(UnreadableFileError, match="too much markup"):
        read_html(b"<b>" * 101)


@pytest.mark.parametrize(
    "content",
    [
        "Grüße".encode(),
        "Grüße".encode("utf-8-sig"),
        "Grüße".encode("utf-16"),
        "Grüße".encode("cp1252"),
    ],
    ids=["utf-8", "with a mark", "utf-16", "cp1252"],
)
def test_text_is_decoded_in_common_encodings(content: bytes) -> None:
    assert read_text(content).sections[0].text == "Grüße"


def test_a_pdf_is_read_page_by_page(reader: DocumentReader, tmp_path: Path) -> None:
    content = pdf(["Every employee", "has 28 days."], [], ["Trains come first."], title="Rules")

    document = read(reader, tmp_path, "rules.pdf", content)

    assert (document.title, document.page_count) == ("Rules", 3)
    assert [(section.page, " ".join(section.text.split())) for section in document.sections] == [
        (1, "Every employee has 28 days."),
        (3, "Trains come first."),
    ]


def test_the_other_pages_of_a_pdf_with_a_broken_page_are_read(
    reader: DocumentReader, tmp_path: Path
) -> None:
    content = pdf(["First."], ["Second."]).replace(b"/Contents 5 0 R", b"/Contents 99 0 R")

    document = read(reader, tmp_path, "half.pdf", content)

    assert [section.page for section in document.sections] == [2]


def encrypted_pdf() -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(["Secret."]))))
    writer.encrypt("password", algorithm="RC4-128")
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


# Functions, because only the tests that read them need the content: some are large.
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty.md": (lambda: b"", "no text"),
    "blank.txt": (lambda: b" \n\t\n", "no text"),
    "binary.txt": (lambda: bytes(range(256)) * 10, "no text"),
    "broken.pdf": (lambda: b"%PDF-1.4\n" + b"nonsense" * 100, "broken"),
    "not.pdf": (lambda: b"<html>", "broken"),
    "cut.pdf": (lambda: pdf(["Hello."])[:200], "broken"),
    "locked.pdf": (encrypted_pdf, "password"),
    "pictures.pdf": (lambda: pdf([], []), "no text"),
    "bomb.pdf": (
        lambda: with_contents([b"(x) Tj " * 30_000_000]),
        "no text|broken|too much|too long",
    ),
    "deep.html": (lambda: b"<div>" * 200_000 + b"<script>", "no text"),
    "comments.html": (lambda: b"<!--" * 3_000_000, "no text"),
    "endless.md": (lambda: b"a" * 21_000_000, "too much text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_the_reason_and_the_next_is_read(
    reader: DocumentReader, tmp_path: Path, name: str
) -> None:
    make_content, reason = HOSTILE[name]

    with pytest.raises(UnreadableFileError, match=reason):
        read(reader, tmp_path, name, make_content())

    assert read(reader, tmp_path, "good.md", b"# Good\n\nfine").title == "Good"


def test_a_pipe_or_missing_file_is_refused_before_it_is_opened(
    reader: DocumentReader, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)

    with pytest.raises(UnreadableFileError, match="no file"):
        reader.read(pipe, "text/markdown")
    with pytest.raises(UnreadableFileError, match="No such file"):
        reader.read(tmp_path / "gone.md", "text/markdown")


def test_control_sequences_and_invalid_characters_are_removed(
    reader: DocumentReader, tmp_path: Path
) -> None:
    page = b"<title>T\x1b]0;x\x07&#xD800;</title><h1>H\x1b[2J</h1><p>a&#xD800;b\x07c\x1b[31md"

    document = read(reader, tmp_path, "odd.html", page)

    (section,) = document.sections
    all_text = "".join((document.title, *section.headings, section.text))
    assert not {"\x1b", "\x07"} & set(all_text)
    assert all_text.encode()


def test_reading_times_out(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\ntext")

    # No process starts within this limit.
    with (
        DocumentReader(time_limit_s=0.0001) as reader,
        pytest.raises(UnreadableFileError, match="too long"),
    ):
        reader.read(tmp_path / "a.md", "text/markdown")


def test_closing_leaves_no_process_and_no_thread(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\ntext")
    before = set(threading.enumerate())

    with DocumentReader() as reader:
        reader.read(tmp_path / "a.md", "text/markdown")
        pid = reader.worker_pid
        assert pid is not None
        os.kill(pid, 0)

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    # Threads of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_modules_in_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit")
    (tmp_path / "a.md").write_text("# A\n\ntext")
    monkeypatch.chdir(tmp_path)
    with DocumentReader() as reader:
        assert reader.read(tmp_path / "a.md", "text/markdown").title == "A"


def test_the_worker_gets_no_secret_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("# A\n\ntext")
    monkeypatch.setenv("MODEL_API_KEY", "secret")
    with DocumentReader() as reader:
        reader.read(tmp_path / "a.md", "text/markdown")
        environment = Path(f"/proc/{reader.worker_pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"secret" not in environment
