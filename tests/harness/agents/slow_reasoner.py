"""A reasoning agent with a scripted model and tool, for tests that kill it: `reasoner`.

It writes a sentence, calls its tool, and then counts to 100. At 50 it waits until a file `go`
exists in the folder REASONER_FOLDER. Each call of its tool adds a line to the file `called` there.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

from harness.agents.shop import ToolsWithoutTasks
from trunkline.agents.calls.tool_source import OnProgress, OnTask, ToolListing
from trunkline.agents.reasoning import ReasoningAgent
from trunkline.agents.reasoning.models import Model
from trunkline.v1 import agent_card_pb2, part_pb2, tool_service_pb2

FOLDER = Path(os.environ.get("REASONER_FOLDER", "."))
FIRST = "First I look it up. "


class SlowModel(BaseChatModel):
    """Calls the tool, then counts."""

    @property
    def _llm_type(self) -> str:
        return "slow"

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: object
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if not any(isinstance(message, ToolMessage) for message in messages):
            call = tool_call_chunk(name="s__look", args="{}", id="c1", index=0)
            message = AIMessageChunk(content=FIRST, tool_call_chunks=[call])
            yield ChatGenerationChunk(message=message)
            return
        for number in range(100):
            if number == 50:
                while not (FOLDER / "go").exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{number} "))


class OneTool(ToolsWithoutTasks):
    """A tool that records its calls, and answers with a picture."""

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        """Return the tool."""
        return ToolListing((tool_service_pb2.Tool(server=servers[0], name="look"),), {})

    async def call_tool(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask,
    ) -> tool_service_pb2.ToolResult:
        """Record the call."""
        with (FOLDER / "called").open("a", encoding="utf-8") as file:
            file.write(f"{request.task_id}\n")
        picture = part_pb2.Part(raw=b"picture", media_type="image/png")
        return tool_service_pb2.ToolResult(content=[part_pb2.Part(text="seen"), picture])


reasoner = ReasoningAgent(
    agent_card_pb2.AgentCard(
        name="reasoner",
        description="Counts slowly.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
    ),
    servers=["s"],
    tools=OneTool(),
    model=Model.from_chat_model(SlowModel(), name="slow"),
)
