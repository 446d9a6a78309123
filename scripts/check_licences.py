"""Checks that the licence of every runtime dependency is on the list of allowed ones.

The dependencies are those of `requirements/runtime.txt`, and of all extras in
`requirements/lowest.txt`. Their licences come from the metadata of the installed packages.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

REQUIREMENTS: Final = Path(__file__).resolve().parents[1] / "requirements"

# SPDX identifiers. All of them let us ship the package unchanged beside code of our licence. MPL
# asks for the source of changed files only; we change none.
ALLOWED: Final = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC",
        "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Zlib",
    }
)  # fmt: skip

# Package -> its licence, if the metadata does not say it in SPDX or by a classifier.
STATED_ELSEWHERE: Final = {
    "currencyconverter": "Apache-2.0",  # in its repository
    "sqlite-vec": "MIT OR Apache-2.0",  # "MIT License, Apache License, Version 2.0"
}
# Package -> its licence. They are for systems, or versions of Python, on which no check runs.
OTHER_SYSTEMS: Final = {
    "async-timeout": "Apache-2.0",
    "colorama": "BSD-3-Clause",
    "httpx2-jsfetch": "BSD-3-Clause",
    "pywin32": "PSF-2.0",
}

# Names in classifiers and in the old field `License`, in lower case.
_SPDX: Final = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache software license": "Apache-2.0",
    "bsd license": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
}
_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==")
_WORD: Final = re.compile(r"[()]|[^\s()]+")


def is_allowed(expression: str) -> bool:
    """Return True if an SPDX expression leaves a choice of allowed licences.

    Raises:
        ValueError: it is not an expression.
    """
    words = _WORD.findall(expression)
    result = _parse_any(words)
    if words:
        raise ValueError(f"{expression!r} is not an SPDX expression")
    return result


def _parse_any(words: list[str]) -> bool:
    result = _parse_all(words)
    while words and words[0] == "OR":
        del words[0]
        result |= _parse_all(words)
    return result


def _parse_all(words: list[str]) -> bool:
    result = _parse_term(words)
    while words and words[0] == "AND":
        del words[0]
        result &= _parse_term(words)
    return result


def _parse_term(words: list[str]) -> bool:
    if not words:
        raise ValueError("a licence is missing")
    word = words.pop(0)
    if word != "(":
        return word in ALLOWED
    result = _parse_any(words)
    if not words or words.pop(0) != ")":
        raise ValueError("a parenthesis is not closed")
    return result


def find_licence(name: str, package: Distribution | None) -> str:
    """Return the licence of a package as an SPDX expression; empty: unknown."""
    if package is None:
        return OTHER_SYSTEMS.get(name, "")
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    if name in STATED_ELSEWHERE:
        return STATED_ELSEWHERE[name]
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in metadata.get_all("Classifier", [])
        if text.startswith("License :: ") and text != "License :: OSI Approved"
    ]
    # The old field may have the whole text, whose first line is the name.
    texts = classifiers or [(metadata.get("License") or "").strip().partition("\n")[0]]
    # Several classifiers may be a choice or not: all of them have to be allowed.
    return " AND ".join(_SPDX.get(text.lower(), text) for text in texts)


def find_problems(files: Sequence[Path], folders: Sequence[str] | None) -> Iterator[str]:
    """Yield the dependencies in files of pins that are not allowed, with the reason."""
    installed = {
        _normalize(package.metadata["Name"]): package
        for package in (distributions(path=list(folders)) if folders else distributions())
    }
    names = {
        _normalize(match[1]) for file in files for match in map(_PIN.match, file.open()) if match
    }
    for name in sorted(names):
        package = installed.get(name)
        licence = find_licence(name, package)
        if not licence:
            where = "its metadata" if package else "this environment"
            yield f"{name}: {where} has no licence; look it up, and state it in this script"
            continue
        try:
            allowed = is_allowed(licence)
        except ValueError:
            allowed = False
        if not allowed:
            yield f"{name}: {licence} is not allowed"


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Check, print the problems, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="files of pins")
    parser.add_argument("--path", action="append", help="a folder of installed packages")
    options = parser.parse_args()
    files = options.files or [REQUIREMENTS / "runtime.txt", REQUIREMENTS / "lowest.txt"]
    problems = list(find_problems(files, options.path))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
