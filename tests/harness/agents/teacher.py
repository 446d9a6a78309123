"""An agent that handles messages: it evaluates drafts, fails when asked to, or stays quiet."""

from trunkline import EvaluationRequest, EvaluationResult, TaskContext, agent


@agent(name="teacher", description="Evaluates drafts.")
async def teacher(task: TaskContext) -> str:
    return f"you said {task.text}"


@teacher.on(EvaluationRequest)
async def evaluate(_: TaskContext, request: EvaluationRequest) -> EvaluationResult:
    if request.context == "fail":
        raise RuntimeError("broken")
    return EvaluationResult(approved=True, proposal=request.proposal, score=80)


@teacher.on("quiet")
async def stay_quiet(_: TaskContext, __: object) -> None:
    return None
