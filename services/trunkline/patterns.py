r"""Regular expressions that tools, callers or files supply, run by RE2.

RE2 has no backtracking: a search takes time linear in the text, and memory within a limit. The
product of a pattern's size and the text's length bounds the time, so both have a limit. Groups have
one too, since RE2 copies the places of all groups at each group that it enters or leaves. RE2's
syntax lacks lookaround, backreferences and possessive quantifiers. Character classes such as `\w`
are ASCII.
"""

from functools import lru_cache
from typing import Protocol

PATTERN_LIMIT_CHARS = 4000
"""Longer patterns are refused."""
_SIZE_LIMIT = 8000
_GROUP_LIMIT = 50
_MEMORY_LIMIT_BYTES = 512 << 10
# The patterns that stay compiled. Together they take at most 150 MiB.
_CACHE_SIZE = 300


class InvalidPatternError(ValueError):
    """A text is not a pattern in RE2's syntax, or the pattern is too large."""


class PatternMatch(Protocol):
    """A match, as of the module `re`. A group that took no part is None."""

    def __getitem__(self, group: int | str, /) -> str | None:
        """Return the text of a group.

        Raises:
            IndexError: the pattern has no such group.
        """
        ...

    def start(self) -> int:
        """Return the index of the first character."""
        ...

    def end(self) -> int:
        """Return the index after the last character."""
        ...


class Pattern(Protocol):
    """A compiled pattern, without distinction of case."""

    @property
    def programsize(self) -> int:
        """The number of RE2's instructions, and so of the steps that a byte may take."""
        ...

    @property
    def groups(self) -> int:
        """The number of capturing groups."""
        ...

    def search(self, text: str, /) -> PatternMatch | None:
        """Return the first match anywhere in a text."""
        ...

    def fullmatch(self, text: str, /) -> PatternMatch | None:
        """Return the match of a whole text."""
        ...

    def sub(self, replacement: str, text: str, /) -> str:
        """Return a text with each match replaced."""
        ...


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern.

    Raises:
        InvalidPatternError: it is not in RE2's syntax, or it is too large.
    """
    if len(pattern) > PATTERN_LIMIT_CHARS:
        raise InvalidPatternError(f"it has more than {PATTERN_LIMIT_CHARS} characters")
    compiled = _compile(pattern)
    if isinstance(compiled, str):
        raise InvalidPatternError(compiled)
    return compiled


@lru_cache(maxsize=_CACHE_SIZE)
def _compile(pattern: str) -> Pattern | str:
    """Return the compiled pattern, or the problem. Cached, since refusing a large one is slow."""
    # RE2 loads slowly, and most processes have no patterns.
    import re2

    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = _MEMORY_LIMIT_BYTES
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0]
        return problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
    except UnicodeEncodeError:
        return "it has an unpaired surrogate"
    if compiled.programsize > _SIZE_LIMIT:
        return "it is too large: repeat less, or use fewer alternatives"
    if compiled.groups > _GROUP_LIMIT:
        return f"it has more than {_GROUP_LIMIT} groups; write (?:...) where none is needed"
    return compiled
