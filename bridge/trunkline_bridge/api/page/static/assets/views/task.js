/** One task: the timeline of its journal, and its state now or at any sequence. */

import { postJson } from "../api.js";
import { Badge, Button, Elapsed, ErrorState, Facts, Id, LiveStatus, Loading, PageHeader, Panel, StateBadge, Time } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { JsonView } from "../components/json_view.js";
import { Tabs } from "../components/tabs.js";
import { toast } from "../components/toasts.js";
import { cost, count, hasEnded } from "../format.js";
import { changeQuery, href } from "../router.js";
import { asApiError } from "../store/hooks.js";
import { useMesh } from "../store/mesh.js";
import { mayCall } from "../store/session.js";
import { messageText, timeAt } from "../store/task_events.js";
import { useTask } from "../store/task.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { TaskLinks } from "./task_links.js";
import { Approvals, Artifacts, ChildTree, Plans, ToolCalls, WaitingApprovals } from "./task_parts.js";
import { Timeline } from "./task_timeline.js";

/** @param {import("../views.js").ViewProps} props */
export default function Task({ params, query }) {
  const id = params.id ?? "";
  const at = Number(query.get("at")) || null;
  const { snapshot, current, lastSequence, entries, version, status, error, stale, reload } = useTask(id, at);
  const mesh = useMesh();
  const isWorkflow = mesh?.agents?.some((agent) => agent.name === snapshot?.agent && agent.kind === "workflow") ?? false;
  const tab = query.get("tab") ?? "artifacts";
  const task = snapshot?.task;

  if (!snapshot) {
    return html`<div class="view">
      <${PageHeader} title="Task" back=${{ href: href(["tasks"]), label: "Tasks" }} />
      ${error ? html`<${ErrorState} error=${error} onRetry=${reload} title="The task could not be loaded" />` : html`<${Loading} label="Loading the task" />`}
    </div>`;
  }
  const isPaused = Boolean(task.metadata?.["trunkline/paused"]) && !hasEnded(task.status?.state);
  const request = messageText(task.history?.[0]) || "Task";
  const artifacts = task.artifacts ?? [];
  const tabs = [
    { id: "artifacts", label: "Artifacts", count: artifacts.length },
    { id: "plan", label: "Plan and routes", count: (snapshot.plans ?? []).length + (snapshot.routes ?? []).length },
    { id: "children", label: "Children", count: (snapshot.children ?? []).length },
    { id: "tools", label: "Tool calls", count: (snapshot.toolCalls ?? []).length },
    { id: "approvals", label: "Approvals", count: (snapshot.approvals ?? []).length },
    { id: "state", label: "JSON" },
  ].filter((each) => each.count !== 0 || each.id === "artifacts" || each.id === tab);
  /** @type {Record<string, () => any>} */
  const panels = {
    artifacts: () => html`<${Artifacts} artifacts=${artifacts} infos=${snapshot.artifacts ?? []} ended=${hasEnded(task.status?.state)} />`,
    plan: () => html`<${Plans} plans=${snapshot.plans ?? []} routes=${snapshot.routes ?? []} />`,
    children: () => html`<${ChildTree} children=${snapshot.children ?? []} />`,
    tools: () => html`<${ToolCalls} calls=${snapshot.toolCalls ?? []} />`,
    approvals: () => html`<${Approvals} approvals=${snapshot.approvals ?? []} taskId=${id} canAnswer=${!at} onAnswered=${reload} />`,
    state: () => html`<${JsonView} value=${snapshot} open=${2} />`,
  };
  const shown = tab in panels ? tab : "artifacts";
  return html`<div class="view task">
    <${PageHeader}
      title=${request.length > 140 ? `${request.slice(0, 139)}…` : request}
      back=${{ href: href(["tasks"]), label: "Tasks" }}
      after=${html`<${StateBadge} state=${task.status?.state} />${isPaused && html`<${Badge} tone="warn">paused<//>`}`}
    >
      <${TaskLinks} id=${id} without="task" agent=${snapshot.agent} isChild=${Boolean(snapshot.parent?.taskId)} />
      ${!hasEnded(current?.task.status?.state) && html`<${Actions} id=${id} canPause=${isWorkflow} isPaused=${isPaused} onDone=${reload} />`}
    <//>
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} />`}
    ${!at && tab !== "approvals" && html`<${WaitingApprovals} id=${id} approvals=${snapshot.approvals ?? []} />`}
    ${messageText(task.status?.message) && html`<p class="status-message">${messageText(task.status?.message)}</p>`}
    <${TaskFacts} id=${id} snapshot=${snapshot} until=${at && timeAt(entries, at)} />
    <${TimeTravel} at=${at} last=${lastSequence} stale=${stale} status=${status} />
    <div class="task-split">
      <${Timeline} entries=${entries} version=${version} at=${at} taskId=${id} status=${status} createdAt=${snapshot.createTime} />
      <${Panel} class="task-state">
        <${Tabs} label="State of the task" tabs=${tabs} selected=${shown} onSelect=${(/** @type {string} */ chosen) => changeQuery({ tab: chosen === "artifacts" ? "" : chosen })}>
          ${panels[shown]?.()}
        <//>
      <//>
    </div>
  </div>`;
}

/**
 * @param {{id: string, snapshot: any, until: string | null}} props
 *   until: the time of the event that the task is shown after, empty until it is known; null: it is shown as it is now.
 */
function TaskFacts({ id, snapshot, until }) {
  const { task, usage, parent, tree } = snapshot;
  const traceId = snapshot.traceparent?.split("-")[1];
  const ended = hasEnded(task.status?.state);
  const tokens = Number(usage?.tokens ?? 0);
  const ancestors = tree?.ancestors ?? [];
  const end = ended ? task.status.timestamp : until;
  return html`<${Facts}
    items=${[
      ["Agent", html`<a href=${href(["tasks"], { agent: snapshot.agent })}>${snapshot.agent}</a>`],
      ["Created", html`<${Time} value=${snapshot.createTime} />`],
      [ended ? "Took" : "Running for", end === "" ? "–" : html`<${Elapsed} from=${snapshot.createTime} to=${end} />`],
      ["Turn", String(snapshot.turn ?? 1)],
      tokens > 0 && ["Tokens", count(tokens)],
      Number(usage?.costMicros ?? 0) > 0 && ["Cost", cost(Number(usage.costMicros))],
      ["Task", html`<${Id} value=${id} />`],
      snapshot.host && ["Host", html`<span class="mono">${snapshot.host}</span>`],
      ["Conversation", html`<${Id} value=${task.contextId} link=${href(["tasks"], { contextId: task.contextId })} />`],
      parent?.taskId && ["Called by", html`${[...ancestors.slice(0, -1)].map((/** @type {any} */ each) => (each.taskId ? html`<a href=${href(["tasks", each.taskId])}>${each.agent}</a> › ` : `${each.agent} › `))}<a href=${href(["tasks", parent.taskId])}>${parent.agent}</a>`],
      traceId && ["Submitted in trace", html`<${Id} value=${traceId} link=${href(["traces", traceId])} />`],
      (snapshot.account || snapshot.caller) && ["Caller", [...new Set([snapshot.caller, snapshot.account])].filter(Boolean).join(" of ")],
    ]}
  />`;
}

/**
 * Shows the task as it was at a sequence.
 * @param {{at: number | null, last: number, stale: boolean, status: any}} props
 */
function TimeTravel({ at, last, stale, status }) {
  const shown = Math.min(at ?? last, last);
  const [dragged, setDragged] = useState(shown);
  useEffect(() => setDragged(shown), [shown]);
  /** @param {number} sequence */
  const go = (sequence) => changeQuery({ at: sequence >= last ? "" : Math.max(1, sequence) });
  return html`<div class="time-travel row wrap" role="group" aria-label="Time travel">
    <${Button} kind="quiet" icon="back" label="One event back" disabled=${shown <= 1} onClick=${() => go(shown - 1)} />
    <input
      class="grow"
      type="range"
      aria-label="Sequence of the journal"
      min="1"
      max=${Math.max(1, last)}
      value=${dragged}
      onInput=${(/** @type {any} */ event) => {
        setDragged(Number(event.target.value));
        go(Number(event.target.value));
      }}
    />
    <${Button} kind="quiet" icon="chevron" label="One event on" disabled=${!at} onClick=${() => go(shown + 1)} />
    <span class="number small travel-position">${count(dragged)} of ${count(last)}</span>
    ${at
      ? html`<${Badge} tone=${stale ? "neutral" : "warn"}>${stale ? "Loading" : "As it was"}<//><${Button} onClick=${() => changeQuery({ at: "" })}>Back to now<//>`
      : html`<${LiveStatus} status=${status} />`}
  </div>`;
}

/**
 * @param {{id: string, canPause: boolean, isPaused: boolean, onDone: () => void}} props canPause: only workflows work in steps.
 */
function Actions({ id, canPause, isPaused, onDone }) {
  const [busy, setBusy] = useState("");
  const [confirming, setConfirming] = useState(false);
  /** @param {"cancel" | "pause" | "resume"} action */
  const run = async (action) => {
    setConfirming(false);
    setBusy(action);
    try {
      await postJson(`tasks/${encodeURIComponent(id)}:${action}`);
      toast({ cancel: "The task is being canceled.", pause: "The task is paused.", resume: "The task goes on." }[action], "ok");
      onDone();
    } catch (error) {
      toast(asApiError(error).message, "error");
    }
    setBusy("");
  };
  return html`
    ${canPause && !isPaused && mayCall("PauseTask") && html`<${Button} icon="pause" busy=${busy === "pause"} onClick=${() => run("pause")}>Pause<//>`}
    ${canPause && isPaused && mayCall("ResumeTask") && html`<${Button} icon="play" busy=${busy === "resume"} onClick=${() => run("resume")}>Resume<//>`}
    ${mayCall("CancelTask") && html`<${Button} kind="danger" icon="stop" busy=${busy === "cancel"} onClick=${() => setConfirming(true)}>Cancel task<//>`}
    ${confirming &&
    html`<${Dialog}
      title="Cancel this task?"
      onClose=${() => setConfirming(false)}
      actions=${html`<${Button} onClick=${() => setConfirming(false)}>Keep it running<//><${Button} kind="danger" onClick=${() => run("cancel")}>Cancel task<//>`}
    >
      The task and the tasks it called stop. What they have written stays.
    <//>`}
  `;
}
