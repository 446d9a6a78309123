"""Agents that send each other messages: `student` sends drafts to `teacher`, who evaluates them.

    $ trunkline up --agent review:student --agent review:teacher
    $ trunkline ask --agent student "Rain."
    Not yet: 5 of 20 characters.
    $ trunkline ask --agent student "Rain falls, and rivers swell."
    Approved, and sent to the class.

A message is stored before it is delivered, and delivered until its handler has ended.
"""

from trunkline import (
    Broadcast,
    EvaluationRequest,
    EvaluationResult,
    TaskContext,
    agent,
    run,
)

LENGTH = 20


@agent(tags=["evaluate"])
async def teacher(task: TaskContext) -> str:
    """Evaluates drafts."""
    return "Send me an evaluation_request."


@teacher.on(EvaluationRequest)
async def evaluate(task: TaskContext, request: EvaluationRequest) -> EvaluationResult:
    """Answer with the evaluation of a draft."""
    length = len(request.proposal)
    return EvaluationResult(
        approved=length >= LENGTH,
        proposal=request.proposal,
        feedback=None if length >= LENGTH else f"{length} of {LENGTH} characters",
    )


@agent(tags=["draft"])
async def student(task: TaskContext) -> str:
    """Has drafts evaluated, and publishes what is approved."""
    reply = await task.request("teacher", EvaluationRequest(proposal=task.text))
    match reply.payload:
        case EvaluationResult(approved=True):
            await task.publish("class", Broadcast(content=task.text))
            return "Approved, and sent to the class."
        case EvaluationResult(feedback=feedback):
            return f"Not yet: {feedback}."
    return f"The teacher answered: {reply.text}"


if __name__ == "__main__":
    run(student, teacher)
