"""Drafts and revisions without a model. Pure.

A draft consists of sentences of its material. A revision leaves out some sentences, adds sentences
that an earlier draft left out, replaces wrong results, and lists required terms that no sentence
contains. It invents nothing.
"""

import re
from collections.abc import Sequence
from typing import Final

from trunkline_agents.review.arithmetic import correct, find_statements
from trunkline_agents.review.rubric import Rubric, RubricCheck, count_words, has_term

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[\w\"'(“])|\n\s*(?:[-*•]\s+)?")
_BULLET: Final = re.compile(r"^\s*[-*•]\s+")
# `Write a note for the customers: …`, whose material is behind the colon.
_ORDER: Final = re.compile(
    r"^\s*(?:please\s+)?(?:write|draft|compose|prepare|review|announce|broadcast|publish)\b"
    r"[^:.!?\n]{0,200}:\s*(?=\S)",
    re.IGNORECASE,
)
_KEYWORDS: Final = "Keywords:"


def read_material(request: str, materials: str) -> str:
    """Return the material of a draft: the materials, or the request without its order."""
    return materials.strip() or _ORDER.sub("", request, count=1).strip()


def draft(material: str, rubric: Rubric) -> str:
    """Return a first draft: the whole material if it fits, or its first sentences that fit."""
    if _fits(material, rubric):
        return material
    return " ".join(_compose(_split(material), [], rubric, words=rubric.min_words))


def revise(previous: str, material: str, rubric: Rubric, checks: Sequence[RubricCheck]) -> str:
    """Return a draft revised by the checks of a review, which also contain the reviewer's rubric.

    The revision is as long as the previous draft, if the rubric and the material permit this.
    """
    corrections = [(check.expected, check.correction) for check in checks if check.correction]
    text = correct(previous, corrections)
    required = read_rubric(rubric, checks)
    if _fits(text, required):
        return text
    sentences = _split(text)
    used = set(map(_mask_results, sentences))
    facts = _split(material)
    spare = [each for each in facts if _mask_results(each) not in used]
    kept = [each for each in sentences if not each.startswith(_KEYWORDS)]
    words = max(required.min_words, count_words(previous))
    revised = _compose(kept, spare, required, words=words)
    return " ".join(_sort(revised, facts))


def read_rubric(rubric: Rubric, checks: Sequence[RubricCheck]) -> Rubric:
    """Return a rubric with the requirements that the checks of a review name."""
    fields = rubric.model_dump()
    for check in checks:
        match check.rule:
            case "min_words" | "max_words":
                fields[check.rule] = int(check.expected)
            case "required_term":
                fields["required_terms"].append(check.expected)
            case "forbidden_term":
                fields["forbidden_terms"].append(check.expected)
    for name in ("required_terms", "forbidden_terms"):
        fields[name] = list(dict.fromkeys(fields[name]))
    return Rubric.model_validate(fields)


def _fits(text: str, rubric: Rubric) -> bool:
    words = count_words(text)
    return (
        words >= rubric.min_words
        and (rubric.max_words is None or words <= rubric.max_words)
        and all(has_term(text, term) for term in rubric.required_terms)
        and not any(has_term(text, term) for term in rubric.forbidden_terms)
    )


def _split(text: str) -> list[str]:
    """Return the sentences and points of a text."""
    return [
        sentence
        for part in _SENTENCE_END.split(text)
        if (sentence := _BULLET.sub("", part).strip())
    ]


def _mask_results(sentence: str) -> str:
    """Return a sentence without the results of its arithmetic, which revisions change."""
    statements = find_statements(sentence)
    return correct(sentence, [(each.text, each.with_result("?")) for each in statements])


def _compose(
    sentences: Sequence[str], spare: Sequence[str], rubric: Rubric, *, words: int
) -> list[str]:
    """Return the sentences of a text, with spare sentences if it lacks words or terms."""
    kept = _leave_out(sentences, rubric.forbidden_terms)
    others = [each for each in _leave_out(spare, rubric.forbidden_terms) if each not in kept]
    for term in rubric.required_terms:
        if not any(has_term(each, term) for each in kept):
            found = next((each for each in others if has_term(each, term)), None)
            if found is not None:
                kept.append(found)
                others.remove(found)
    missing = [term for term in rubric.required_terms if not has_term(" ".join(kept), term)]
    ending = f"{_KEYWORDS} {', '.join(missing)}." if missing else ""
    limit = None
    if rubric.max_words is not None:
        limit = max(0, rubric.max_words - count_words(ending))
        kept = _shorten(kept, rubric.required_terms, limit)
    for sentence in others:
        length = count_words(" ".join(kept))
        if length + count_words(ending) >= words:
            break
        if limit is None or length + count_words(sentence) <= limit:
            kept.append(sentence)
    return [*kept, ending] if ending else kept


def _sort(sentences: Sequence[str], facts: Sequence[str]) -> list[str]:
    """Return sentences in the order of the material. Keywords and other sentences are last."""
    places = {_mask_results(fact): number for number, fact in enumerate(facts)}
    return sorted(sentences, key=lambda each: places.get(_mask_results(each), len(facts)))


def _leave_out(sentences: Sequence[str], terms: Sequence[str]) -> list[str]:
    """Return the sentences without forbidden terms. If all have some, remove the terms."""
    clean = [each for each in sentences if not any(has_term(each, term) for term in terms)]
    if clean or not sentences:
        return clean
    text = "\n".join(sentences)
    for term in terms:
        words = r"\s+".join(map(re.escape, term.split()))
        text = re.sub(rf"(?<!\w){words}(?!\w) ?", "", text, flags=re.IGNORECASE)
    return [line.strip() for line in text.split("\n") if line.strip()]


def _shorten(sentences: Sequence[str], terms: Sequence[str], limit: int) -> list[str]:
    """Return the sentences that fit. The last go first, and sentences with a term go last."""
    bearers = {
        next((number for number, each in enumerate(sentences) if has_term(each, term)), -1)
        for term in terms
    }
    kept = dict(enumerate(sentences))
    words = sum(map(count_words, sentences))
    for number in sorted(kept, key=lambda number: (number in bearers, -number)):
        if words <= limit or len(kept) == 1:
            break
        words -= count_words(kept.pop(number))
    texts = list(kept.values())
    if words <= limit or not texts:
        return texts
    # One sentence is left, and it is too long.
    return [f"{' '.join(texts[0].split()[:limit]).rstrip('.,;:')}…"] if limit else []
