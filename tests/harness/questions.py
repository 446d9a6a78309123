"""The table of everyday questions, and a mesh of all bundled agents that answers them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx

from harness.mesh.command_line import run_in_process
from harness.mesh.processes import running_mesh
from harness.remote.argocd_server import TOKEN, argocd_server

_FOLDER = Path(__file__).parents[1] / "vectors/questions"
_AT_ONCE = 4
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Question:
    """A question, the texts that its answer contains, and the agents of its steps."""

    kind: str
    text: str
    answer: Sequence[str]
    agents: Sequence[str] | None


@dataclass(frozen=True)
class QuestionResult:
    """The outcome of a question."""

    question: Question
    state: str
    answer: str
    agents: Sequence[str]

    @property
    def is_right(self) -> bool:
        """True if it completed, with the right agents and all expected texts."""
        wanted = self.question.agents
        has_agents = wanted is None or list(wanted) == list(self.agents)
        return (
            self.state == "TASK_STATE_COMPLETED"
            and has_agents
            and all(text in self.answer for text in self.question.answer)
        )


def load_questions(name: str) -> list[Question]:
    """Load a half of the table, `development` or `held_back`, or `everyday`."""
    table = json.loads((_FOLDER / f"{name}.json").read_text("utf-8"))
    return [
        Question(case["kind"], case["question"], case["answer"], case.get("agents"))
        for case in table["cases"]
    ]


@asynccontextmanager
async def answering_mesh(folder: Path) -> AsyncIterator[str]:
    """Run a mesh with all bundled agents and the handbook as its document; yields its URL."""
    added = run_in_process(
        "docs", "add", str(_FOLDER / "handbook.md"), "--data", str(folder / "data")
    )
    assert added.exit == 0, added.err
    with argocd_server() as argocd:
        environment = {
            "TRUNKLINE_ARGOCD_URL": argocd.url,
            "ARGOCD_AUTH_TOKEN": TOKEN,
            "TRUNKLINE_RESEARCH_ARXIV_URL": "",
            "TAVILY_API_KEY": "",
        }
        async with running_mesh(folder, servers=None, environment=environment) as mesh:
            yield mesh.http_url


async def ask_all(url: str, questions: Sequence[Question]) -> list[QuestionResult]:
    """Ask the questions, a few at a time, each in a conversation of its own."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask(client: httpx.AsyncClient, number: int, question: Question) -> QuestionResult:
        async with limit:
            return await _ask(client, number, question)

    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(ask(client, number, question))
                for number, question in enumerate(questions)
            ]
        return [task.result() for task in asked]


async def _ask(client: httpx.AsyncClient, number: int, question: Question) -> QuestionResult:
    message = {
        "messageId": f"question-{number}",
        "role": "ROLE_USER",
        "parts": [{"text": question.text}],
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    response = await client.post("/", json=request, headers={"A2A-Version": "1.0"})
    task: Mapping[str, Any] = response.json()["result"]["task"]
    route = task.get("metadata", {}).get("trunkline/route", {})
    steps = route.get("steps") or [route]
    texts = [
        part.get("text", "")
        for artifact in task.get("artifacts", [])
        if artifact.get("name") == "partial_result"
        for part in artifact["parts"]
    ]
    texts += [part.get("text", "") for part in task["status"].get("message", {}).get("parts", [])]
    agents = [step["agent"] for step in steps if step.get("agent")]
    return QuestionResult(question, task["status"]["state"], "\n".join(texts), agents)
