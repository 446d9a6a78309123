"""Makes small PDF files, whole and broken ones."""

import zlib
from collections.abc import Sequence


def pdf(*pages: Sequence[str], title: str = "") -> bytes:
    """Return a PDF with these pages, each of these lines."""
    return with_contents([_drawn(lines) for lines in pages], title=title)


def with_contents(contents: Sequence[bytes], *, title: str = "") -> bytes:
    """Return a PDF with these content streams, one for each page."""
    count = len(contents)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {count} /Kids [{kids}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, content in enumerate(contents):
        page = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792]"
            f" /Resources << /Font << /F 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>"
        )
        packed = zlib.compress(content)
        head = f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n".encode()
        objects += [page.encode(), head + packed + b"\nendstream"]
    objects.append(f"<< /Title ({title}) >>".encode())
    return _file(objects)


def _drawn(lines: Sequence[str]) -> bytes:
    operators = [f"({line}) Tj 0 -14 Td" for line in lines]
    return "\n".join(["BT /F 12 Tf 72 720 Td", *operators, "ET"]).encode("latin-1")


def _file(objects: Sequence[bytes]) -> bytes:
    content = b"%PDF-1.4\n"
    offsets = []
    for number, item in enumerate(objects, start=1):
        offsets.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, item)
    begin = len(content)
    rows = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"trailer << /Size %d /Root 1 0 R /Info %d 0 R >>" % (size, len(objects))
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, rows)
    return content + table + trailer + b"\nstartxref\n%d\n%%%%EOF\n" % begin
