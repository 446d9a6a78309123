"""An approval: the agent pays after a person has approved the payment.

    $ trunkline up --agent pay:pay
    $ trunkline ask --agent pay "20 EUR to Ada"
    pay: pay with {"sum": 20, "currency": "EUR", "to": "Ada"} needs your approval (TASK.1).
    Answer "approve", "reject" and why, or "edit" and other arguments as JSON.
    $ trunkline ask --agent pay --task TASK approve
    20 EUR are paid to Ada.
    $ trunkline ask --agent pay "90 EUR to Ada"
    pay: pay with {"sum": 90, "currency": "EUR", "to": "Ada"} needs your approval (OTHER.1).
    Answer "approve", "reject" and why, or "edit" and other arguments as JSON.
    $ trunkline reject OTHER.1 "too much"
    OTHER.1: rejected

The answer may come days later: no process waits for it, and the question survives a restart.
"""

import re

from trunkline import ApprovalDecision, TaskContext, agent, run


@agent(tags=["pay", "payment"], examples=["20 EUR to Ada"])
async def pay(task: TaskContext) -> str | None:
    """Pays a sum to somebody, after an approval."""
    # The request is in the first message; the answer of a person is the second.
    request = task.history[0].parts[0].text if task.history else task.text
    match = re.fullmatch(r"(\d+) ([A-Z]{3}) to (\w+)", request)
    if match is None:
        await task.reject('Say "20 EUR to Ada".')
        return None
    payment = {"sum": int(match[1]), "currency": match[2], "to": match[3]}
    answer = await task.request_approval("pay", payment)
    if answer is None:
        return None  # The next turn gets the answer, from this same call.
    if answer.decision is ApprovalDecision.REJECTED:
        await task.reject(f"Not paid: {answer.reason}.")
        return None
    paid = answer.arguments or payment
    return f"{paid['sum']:g} {paid['currency']} are paid to {paid['to']}."


if __name__ == "__main__":
    run(pay)
