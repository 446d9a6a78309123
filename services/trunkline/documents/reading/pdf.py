"""Reads the text of PDF files, page by page. Pictures of text are not read."""

import io
import logging
import re

from trunkline.documents.passages import Section
from trunkline.documents.reading.kinds import TEXT_LIMIT_CHARS, Extract, Unreadable, heading

_PAGE_LIMIT = 5000
# A word that a line's end has cut in two.
_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")


def read_pdf(content: bytes) -> Extract:
    """Read a PDF: a section for each page with text.

    Raises:
        Unreadable: it is none, needs a password, or holds no text.
    """
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it needs a password")
        pages = reader.pages
        if len(pages) > _PAGE_LIMIT:
            raise Unreadable(f"it has more than {_PAGE_LIMIT} pages")
        sections: list[Section] = []
        broken = length = 0
        for number, page in enumerate(pages, start=1):
            try:
                text = _HYPHEN.sub("", page.extract_text())
            # One broken page is no reason to lose the others.
            except Exception:  # noqa: BLE001
                broken += 1
                continue
            length += len(text)
            if length > TEXT_LIMIT_CHARS:
                raise Unreadable("it holds too much text")
            if text.strip():
                sections.append(Section(text, page=number))
        if not sections:
            problem = "its pages are broken" if broken else "it holds no text, perhaps pictures"
            raise Unreadable(problem)
        return Extract(_title(reader), sections, page_count=len(pages))
    except PyPdfError as error:
        raise Unreadable("it is a broken PDF") from error


def _title(reader: object) -> str:
    try:
        found = getattr(reader.metadata, "title", "")  # type: ignore[attr-defined]
    # Whatever is wrong with it, the text matters more.
    except Exception:  # noqa: BLE001
        return ""
    return heading(found) if isinstance(found, str) else ""
