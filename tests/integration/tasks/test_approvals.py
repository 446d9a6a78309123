"""Calls that need a person's approval: requested and answered over any wire, and made once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.agents.inline_agents import texts
from harness.agents.shop import Orders, shop
from harness.mesh.command_line import run_command
from harness.mesh.identity import mesh_credentials
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.identity import StatementVerifier
from trunkline.core.settings import Settings
from trunkline.core.users import User, current_user
from trunkline.errors import ApprovalAnsweredError, TaskEndedError
from trunkline.tasks.approvals import digest_answer
from trunkline.tasks.lifecycle import State
from trunkline.v1 import event_pb2, snapshot_pb2, task_service_pb2

APPROVED = event_pb2.APPROVAL_DECISION_APPROVED
REJECTED = event_pb2.APPROVAL_DECISION_REJECTED
WAITS = State.TASK_STATE_INPUT_REQUIRED
DONE = State.TASK_STATE_COMPLETED


@dataclass
class Shops:
    """A mesh with shops, and the orders of each."""

    bridged: BridgedMesh
    apples: Orders
    pears: Orders

    async def answer(
        self, approval_id: str, *, task_id: str = "", account: str = "", **fields: Any
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer at the host of the root task, as the command line does."""
        task_id = task_id or approval_id.rpartition(".")[0]
        fields.setdefault("decision", APPROVED)
        request = task_service_pb2.AnswerApprovalRequest(
            task_id=task_id, approval_id=approval_id, account=account, **fields
        )
        return (
            await self.bridged.mesh.directory.client_for_task(task_id).tasks.AnswerApproval(request)
        ).approval

    async def ended(self, task_id: str) -> snapshot_pb2.TaskSnapshot:
        return await self.bridged.mesh.until(
            task_id, lambda now: now.task.status.state not in (WAITS, State.TASK_STATE_WORKING)
        )


def answer_text(task: Any) -> str:
    """Return the text of a task's answer on the wire."""
    return "".join(
        part["text"]
        for artifact in task["artifacts"]
        if artifact.get("name") in ("answer", "partial_result")
        for part in artifact["parts"]
    )


@pytest.fixture
async def shops(tmp_path: Path) -> AsyncIterator[Shops]:
    async with open_bridged_mesh(tmp_path, Settings(default_agent="supervisor")) as bridged:
        apples, pears = Orders(), Orders()
        await bridged.mesh.join(shop("apples", apples), shop("pears", pears))
        yield Shops(bridged, apples, pears)


async def test_the_question_names_agent_and_call_and_possible_answers(shops: Shops) -> None:
    task = await shops.bridged.at("/agents/apples").send("order 3 apples")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    text, data = task["status"]["message"]["parts"]
    approval_id = f"{task['id']}.1"
    assert text["text"] == (
        'apples: apples/order with {"n": 3, "item": "apples"} needs your approval'
        f" ({approval_id}).\n"
        'Answer "approve", "reject" and why, or "edit" and other arguments as JSON.'
    )
    assert data["data"] == {
        "approvals": [
            {
                "approvalId": approval_id,
                "number": 1,
                "tool": "apples/order",
                "arguments": {"n": 3, "item": "apples"},
                "path": ["apples"],
            }
        ]
    }
    assert shops.apples.orders == []


@pytest.mark.parametrize(
    ("text", "orders", "answer"),
    [
        ("approve", [{"n": 3, "item": "apples"}], "Ordered 3 apples."),
        ("reject too many.", [], "apples/order was not called. It was rejected: too many."),
        ('edit {"n": 1, "item": "apple"}', [{"n": 1, "item": "apple"}], "Ordered 1 apple."),
    ],
)
async def test_a_text_answers(
    shops: Shops, text: str, orders: list[dict[str, Any]], answer: str
) -> None:
    caller = shops.bridged.at("/agents/apples")
    task = await caller.send("order 3 apples")
    task = await caller.send(text, taskId=task["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    assert answer_text(task) == answer
    assert shops.apples.orders == orders


async def test_data_answers_and_invalid_data_is_an_error(shops: Shops) -> None:
    caller = shops.bridged.at("/agents/apples")
    task = await caller.send("order 3 apples")
    message = caller.message("", taskId=task["id"])
    message["parts"] = [{"data": {"approvalId": "j-1.1", "decision": "approve"}}]
    error = await caller.error("SendMessage", {"message": message})
    assert error["code"] == -32602, error
    message = caller.message("", taskId=task["id"])
    message["parts"] = [
        {"data": {"approvalId": f"{task['id']}.1", "decision": "approve"},
         "mediaType": "application/json"},
    ]  # fmt: skip
    task = (await caller.call("SendMessage", {"message": message}))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert len(shops.apples.orders) == 1


async def test_a_call_over_grpc_answers_once(shops: Shops) -> None:
    task = await shops.bridged.mesh.ask("order 3 apples", agent="apples")
    approval_id = task.approvals[0].requested.approval_id
    given = await shops.answer(approval_id)
    assert given.answered.decision == APPROVED
    ended = await shops.ended(task.task.id)
    assert texts(ended) == ["Ordered 3 apples."]
    assert ended.tool_calls[0].started.call_id == approval_id
    assert await shops.answer(approval_id) == ended.approvals[0]
    with pytest.raises(ApprovalAnsweredError):
        await shops.answer(approval_id, decision=REJECTED)
    assert len(shops.apples.orders) == 1


BOTH = "order 3 apples and order 2 pears"


async def ask_both(shops: Shops, **options: Any) -> snapshot_pb2.TaskSnapshot:
    """Give a supervisor a request for which both shops need approval."""
    await shops.bridged.mesh.supervise(**options)
    task = await shops.bridged.mesh.ask(BOTH)
    assert task.task.status.state == WAITS, task.task.status
    return task


def asked_by(task: snapshot_pb2.TaskSnapshot, *agents: str) -> list[tuple[int, str]]:
    """Return number and id of the approval of each agent; their order is random."""
    approvals_by_agent = {
        approval.requested.path[-1]: (number, approval.requested.approval_id)
        for number, approval in enumerate(task.approvals, start=1)
    }
    return [approvals_by_agent[agent] for agent in agents]


async def test_approvals_of_children_bubble_up_with_their_path_and_are_asked_once(
    shops: Shops,
) -> None:
    task = await ask_both(shops)
    assert {
        (approval.requested.tool, *approval.requested.path, approval.requested.approval_id)
        for approval in task.approvals
    } == {
        (f"{name}/order", "supervisor", name, f"{child.started.task_id}.1")
        for name, child in zip(("apples", "pears"), task.children, strict=True)
    }
    question = task.task.status.message.parts[0].text
    assert question.startswith("2 calls need your approval:\n1. supervisor → ")
    assert question.count("apples/order") == question.count("pears/order") == 1
    assert len(task.task.status.message.parts) == 2


async def test_each_child_gets_its_answer_in_any_order(shops: Shops) -> None:
    task = await ask_both(shops)
    ((pears, _),) = asked_by(task, "pears")
    remaining = await shops.bridged.mesh.ask(f"approve {pears}", task_id=task.task.id)
    assert remaining.task.status.state == WAITS
    assert (shops.apples.orders, len(shops.pears.orders)) == ([], 1)
    assert "Ordered 2 pears." in texts(remaining)
    assert remaining.task.status.message.parts[0].text.startswith("supervisor → apples: ")
    again = await shops.bridged.mesh.ask("what?", task_id=task.task.id)
    assert again.task.status.state == WAITS
    assert again.task.status.message.parts[0].text == remaining.task.status.message.parts[0].text
    ended = await shops.bridged.mesh.ask("reject too dear", task_id=task.task.id)
    assert ended.task.status.state == DONE
    assert texts(ended)[-1] == "apples/order was not called. It was rejected: too dear."
    assert (shops.apples.orders, len(shops.pears.orders)) == ([], 1)


async def test_one_message_answers_all(shops: Shops) -> None:
    task = await ask_both(shops)
    (apples, _), (pears, _) = asked_by(task, "apples", "pears")
    text = f'edit {apples} {{"n": 1, "item": "apple"}}\napprove {pears}'
    ended = await shops.bridged.mesh.ask(text, task_id=task.task.id)
    assert ended.task.status.state == DONE
    assert texts(ended)[-1] == "Ordered 1 apple.\nOrdered 2 pears."
    assert [len(seller.orders) for seller in (shops.apples, shops.pears)] == [1, 1]


async def test_an_answer_at_the_child_is_forwarded_to_the_root(shops: Shops) -> None:
    task = await ask_both(shops)
    (_, first), (_, second) = asked_by(task, "apples", "pears")
    await shops.answer(second, decision=REJECTED, reason="no")
    await shops.bridged.mesh.until(task.task.id, lambda now: now.turn == 2)
    await shops.answer(first, task_id=task.task.id)
    ended = await shops.ended(task.task.id)
    assert ended.task.status.state == DONE
    assert (len(shops.apples.orders), shops.pears.orders) == (1, [])
    child = await shops.bridged.mesh.get_task(ended.children[0].started.task_id)
    assert child.approvals[0].answered.decision == APPROVED
    with pytest.raises(ApprovalAnsweredError):
        await shops.answer(first, decision=REJECTED)


async def test_over_two_levels_the_path_names_all(shops: Shops) -> None:
    mesh = shops.bridged.mesh
    await mesh.supervise(
        name="fruit", agents=["apples", "pears"], tags=["apples", "pears"], description="Fruit."
    )
    await mesh.supervise(agents=["fruit"])
    task = await mesh.ask(BOTH)
    assert task.task.status.state == WAITS
    assert sorted(list(approval.requested.path) for approval in task.approvals) == [
        ["supervisor", "fruit", "apples"],
        ["supervisor", "fruit", "pears"],
    ]
    assert {approval.requested.child_task_id for approval in task.approvals} == {
        child.started.task_id for child in task.children
    }
    (_, first), (_, second) = asked_by(task, "apples", "pears")
    await shops.answer(second)
    await mesh.until(task.task.id, lambda now: now.task.status.state == WAITS and now.turn == 2)
    assert (shops.apples.orders, len(shops.pears.orders)) == ([], 1)
    ended = await mesh.ask(f"approve {first}", task_id=task.task.id)
    assert ended.task.status.state == DONE, ended.task.status
    assert [len(seller.orders) for seller in (shops.apples, shops.pears)] == [1, 1]


async def test_a_child_answered_at_its_own_address_is_not_asked_again(shops: Shops) -> None:
    mesh = shops.bridged.mesh
    await mesh.supervise(
        name="fruit", agents=["apples", "pears"], tags=["apples", "pears"], description="Fruit."
    )
    await mesh.supervise(agents=["fruit"])
    task = await mesh.ask(BOTH)
    ((_, apples),) = asked_by(task, "apples")
    child_id = apples.rpartition(".")[0]
    child = await mesh.ask("approve", agent="apples", task_id=child_id)
    assert child.task.status.state == DONE
    remaining = await mesh.until(
        task.task.id, lambda now: now.turn == 2 and now.task.status.state == WAITS
    )
    assert "Ordered 3 apples." in texts(remaining)
    ended = await mesh.ask("approve", task_id=task.task.id)
    assert ended.task.status.state == DONE, ended.task.status
    assert [len(seller.orders) for seller in (shops.apples, shops.pears)] == [1, 1]
    assert {"Ordered 3 apples.", "Ordered 2 pears."} <= {*texts(ended)}


async def test_cancel_of_the_root_withdraws_all(shops: Shops) -> None:
    task = await ask_both(shops)
    client = shops.bridged.mesh.directory.client_for_task(task.task.id)
    await client.cancel_task(task.task.id, account="")
    for approval in task.approvals:
        with pytest.raises(TaskEndedError):
            await shops.answer(approval.requested.approval_id)
    assert shops.apples.orders == shops.pears.orders == []


async def test_the_command_line_lists_approves_and_rejects(shops: Shops) -> None:
    mesh = ("--mesh", shops.bridged.mesh.registry_address)
    task = await ask_both(shops)
    (_, first), (_, second) = asked_by(task, "apples", "pears")
    listed = await run_command("approvals", *mesh, "--json")
    assert (listed.exit, listed.err) == (0, "")
    approvals_by_agent = {approval["approval_id"]: approval for approval in listed.json}
    assert set(approvals_by_agent) == {first, second}
    assert (approvals_by_agent[first]["tool"], approvals_by_agent[first]["task_id"]) == (
        "apples/order",
        task.task.id,
    )
    assert approvals_by_agent[first]["arguments"] == {"n": 3, "item": "apples"}
    assert approvals_by_agent[first]["path"] == ["supervisor", "apples"]
    edited = await run_command("approve", first, *mesh, "--edit", '{"n": 1, "item": "apple"}')
    assert (edited.exit, edited.out) == (0, f"{first}: approved with other arguments\n")
    again = await run_command("reject", first, "too late", *mesh)
    assert again.exit != 0
    assert "was answered before: it is approved with other arguments" in again.err
    await shops.bridged.mesh.until(task.task.id, lambda now: now.turn == 2)
    assert (await run_command("reject", second, "too dear", *mesh)).exit == 0
    ended = await shops.ended(task.task.id)
    assert texts(ended)[-1] == "pears/order was not called. It was rejected: too dear."
    assert shops.apples.orders == [{"n": 1, "item": "apple"}]
    assert (await run_command("approvals", *mesh, "--json")).json == []


async def test_the_command_line_refuses_an_answer_without_a_question(shops: Shops) -> None:
    mesh = ("--mesh", shops.bridged.mesh.registry_address)
    task = await shops.bridged.mesh.ask("order 3 apples", agent="apples")
    waiting = task.approvals[0].requested.approval_id
    refusals = {
        ("approve", "j-1.1"): "no approval 'j-1.1' here",
        ("approve", "nonsense"): "no approval 'nonsense'",
        ("approve", waiting, "--edit", "[]"): "must be a JSON object",
        ("approve", waiting, "--account", "other"): f"no approval '{waiting}'",
    }
    async with asyncio.TaskGroup() as group:
        refused = {words: group.create_task(run_command(*words, *mesh)) for words in refusals}
    for words, problem in refusals.items():
        done = refused[words].result()
        assert done.exit != 0
        assert problem in done.err
    assert shops.apples.orders == []


async def test_an_answer_while_another_child_works_takes_effect_after_it(shops: Shops) -> None:
    mesh = shops.bridged.mesh
    slow = Orders(needs_approval=False)
    slow.go.clear()
    await mesh.join(shop("plums", slow))
    await mesh.supervise()
    task_id = await mesh.begin("order 3 apples and order 4 pears and order 2 plums")
    waiting = await mesh.until(task_id, lambda now: len(now.approvals) == 2)
    await slow.began.wait()
    # Two users, each with a statement of their own.
    for name, approval in zip(("ann", "ben"), waiting.approvals, strict=True):
        answer = event_pb2.ApprovalAnswered(decision=APPROVED)
        digest = digest_answer(approval.requested, answer)
        current_user.set(User(ANONYMOUS_ACCOUNT, name, approved=frozenset({digest})))
        answered = await shops.answer(approval.requested.approval_id, task_id=task_id)
        assert answered.answered.turn == 2
        assert answered.answered.user == name
    current_user.set(None)
    assert shops.apples.orders == shops.pears.orders == []
    slow.go.set()
    ended = await mesh.until(task_id, lambda now: now.task.status.state == DONE)
    assert {"Ordered 2 plums.", "Ordered 3 apples.", "Ordered 4 pears."} <= set(texts(ended))
    assert len(shops.apples.orders) == len(shops.pears.orders) == len(slow.orders) == 1
    # Each call has the statement of the user who approved it.
    approvers = []
    for request in (*shops.apples.requests, *shops.pears.requests):
        user = await StatementVerifier(mesh_credentials()).verify(request.approval_statement)
        assert user.approved == {request.approval_digest}
        approvers.append(user.name)
    assert sorted(approvers) == ["ann", "ben"]


async def test_a_step_that_needs_the_result_of_a_waiting_one_waits_too(shops: Shops) -> None:
    await shops.bridged.mesh.supervise()
    task = await shops.bridged.mesh.ask("order 3 apples, then order 2 pears for {1}")
    assert task.task.status.state == WAITS
    assert len(task.children) == 1, task
    remaining = await shops.bridged.mesh.ask("approve", task_id=task.task.id)
    assert remaining.task.status.state == WAITS
    assert [child.started.agent for child in remaining.children] == ["apples", "pears"]
    ended = await shops.bridged.mesh.ask("approve", task_id=task.task.id)
    assert ended.task.status.state == DONE
    assert [len(seller.orders) for seller in (shops.apples, shops.pears)] == [1, 1]


@pytest.mark.parametrize("version", ["0.3", "0.1"])
async def test_older_wires_answer_by_their_next_message(shops: Shops, version: str) -> None:
    caller = shops.bridged.at("/agents/apples")
    headers = {"A2A-Version": version} if version == "0.3" else {}

    async def say(text: str, task_id: str) -> Any:
        message = {"role": "user", "parts": [{"kind": "text", "text": text}], "messageId": text}
        params: dict[str, Any] = {"message": message}
        method = "message/send"
        if version == "0.1":
            message = {"role": "user", "parts": [{"type": "text", "text": text}]}
            params = {"id": task_id, "message": message}
            method = "tasks/send"
        elif task_id:
            message["taskId"] = task_id
        return await caller.call(method, params, headers)

    task = await say("order 3 apples", "t-1" if version == "0.1" else "")
    assert task["status"]["state"] == "input-required"
    said = task["status"]["message"]["parts"]
    assert "needs your approval" in said[0]["text"]
    assert said[1]["data"]["approvals"][0]["tool"] == "apples/order"
    task = await say("approve", task["id"])
    assert task["status"]["state"] == "completed"
    assert len(shops.apples.orders) == 1
