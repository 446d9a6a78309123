"""The process that reads files: what is in them may be made to break whoever reads it.

On stdin come lines {"path", "media_type"}; for each one goes out on stdout, {"title",
"page_count", "sections"} or {"problem"}.
"""

import json
import resource
import stat
import sys
from dataclasses import asdict, replace
from pathlib import Path

from trunkline_agents.research.documents.formats import (
    FILE_LIMIT_BYTES,
    SECTION_LIMIT,
    TEXT_LIMIT_CHARS,
    DocumentText,
    FormatReader,
    UnreadableFileError,
    clean_text,
    read_html,
    read_markdown,
    read_pdf,
    read_text,
)

_MEMORY_BYTES = 2 * 1024**3
_READERS: dict[str, FormatReader] = {
    "text/markdown": read_markdown,
    "text/plain": read_text,
    "text/html": read_html,
    "application/pdf": read_pdf,
}


def main() -> None:
    """Read files until stdin closes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        request = json.loads(line)
        answer = _answer(Path(request["path"]), request["media_type"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _answer(path: Path, media_type: str) -> dict[str, object]:
    try:
        return asdict(_read(path, media_type))
    except UnreadableFileError as error:
        return {"problem": str(error)}
    except OSError as error:
        return {"problem": error.strerror or "it can't be opened"}
    except MemoryError:
        return {"problem": "reading it takes too much memory"}
    except RecursionError:
        return {"problem": "it is nested too deeply"}
    # A file that nobody thought of is broken; only what broke reading it is said, no content.
    except Exception as error:  # noqa: BLE001
        return {"problem": f"it is broken ({type(error).__name__})"}


def _read(path: Path, media_type: str) -> DocumentText:
    # Opening a pipe would wait for somebody to write into it.
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableFileError("it is no file")
    with path.open("rb") as file:
        content = file.read(FILE_LIMIT_BYTES + 1)
    if len(content) > FILE_LIMIT_BYTES:
        raise UnreadableFileError(f"it is larger than {FILE_LIMIT_BYTES // 1024**2} MiB")
    read = _READERS[media_type](content)
    sections = [replace(section, text=clean_text(section.text)) for section in read.sections]
    extract = replace(read, sections=[section for section in sections if section.text.strip()])
    if sum(len(section.text) for section in extract.sections) > TEXT_LIMIT_CHARS:
        raise UnreadableFileError("it holds too much text")
    if len(extract.sections) > SECTION_LIMIT:
        raise UnreadableFileError("it has too many sections")
    if not extract.sections:
        raise UnreadableFileError("it holds no text")
    return extract


if __name__ == "__main__":
    main()
