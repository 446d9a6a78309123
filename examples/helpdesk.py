"""Documents: an agent that answers from a folder of them, and knows whom to ask otherwise.

    $ trunkline up --agent helpdesk:helpdesk
    $ trunkline docs add handbook
    added handbook/leave.md
    $ trunkline ask --agent helpdesk "how many days of paid leave do I have?"
    [1] Employees have 28 days of paid leave a year. Ask your team before you plan them.

    Sources:
    [1] Time off, section "Paid leave", line 5, handbook/leave.md
    $ trunkline ask --agent helpdesk "what is for lunch?"
    The handbook does not say. Write to people@example.com.

The agent `research` of every mesh searches the documents: Markdown, text, HTML and PDF, which may
be added while the mesh runs.
"""

from trunkline import TaskContext, TaskState, agent, run


@agent(tags=["helpdesk"], examples=["how many days of paid leave do I have?"], repeatable=True)
async def helpdesk(task: TaskContext) -> str:
    """Answers questions of employees from the handbook."""
    answer = await task.ask("research", task.text, check=False)
    if answer.state is TaskState.COMPLETED:
        return answer.text
    # If nothing fits, `research` asks for other words.
    return "The handbook does not say. Write to people@example.com."


if __name__ == "__main__":
    run(helpdesk)
