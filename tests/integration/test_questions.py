"""The table of everyday questions on a mesh of all bundled agents, without a model's key."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.questions import answering_mesh, ask_all, load_questions

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The result for the held-back half when it was evaluated for the first time. It only rises.
HELD_BACK_RIGHT = 97


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with answering_mesh(tmp_path_factory.mktemp("mesh")) as url:
        yield url


async def test_every_question_of_the_development_half_is_answered(mesh_url: str) -> None:
    results = await ask_all(mesh_url, load_questions("development"))

    wrong = [(result.question.text, result.answer) for result in results if not result.is_right]
    assert wrong == []
    assert len(results) == 100


async def test_the_held_back_half_is_answered_as_well_as_when_it_was_measured(
    mesh_url: str,
) -> None:
    results = await ask_all(mesh_url, load_questions("held_back"))

    assert sum(result.is_right for result in results) >= HELD_BACK_RIGHT
    assert len(results) == 100
