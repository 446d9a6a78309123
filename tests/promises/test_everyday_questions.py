"""Everyday questions are answered without a model's key, as the tables have them."""

from pathlib import Path

from harness.promise_scale import PromiseScale
from harness.questions import answering_mesh, ask_all, load_questions


async def test_everyday_questions_are_answered(tmp_path: Path, scale: PromiseScale) -> None:
    questions = load_questions("everyday")[:: scale.pick(ci=25, prove=1)]
    async with answering_mesh(tmp_path) as url:
        results = await ask_all(url, questions)
    wrong = [(result.question.text, result.answer) for result in results if not result.is_right]
    assert wrong == []
    assert len(results) == len(questions)
    scale.report(questions=len(questions))
