/** A run of a workflow: its path through the graph as it goes, and its steps as a table. */

import { postJson } from "../api.js";
import { Badge, Button, Elapsed, Empty, ErrorState, Id, LiveStatus, Loading, PageHeader, Panel, StateBadge, Time } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { Table } from "../components/table.js";
import { toast } from "../components/toasts.js";
import { hasEnded } from "../format.js";
import { changeQuery, href, route } from "../router.js";
import { asApiError, useJson } from "../store/hooks.js";
import { mayCall } from "../store/session.js";
import { messageText } from "../store/task_events.js";
import { followedEdges, inputText, nodeStates, stepState, useRun } from "../store/workflow_run.js";
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { WaitingApprovals } from "./task_parts.js";
import { NodeList } from "./workflow.js";
import { WorkflowGraph } from "./workflow_graph.js";

/**
 * @typedef {import("../store/workflow_run.js").Run} Run
 * @typedef {import("../store/workflow_run.js").Step} Step
 */

/** @type {Record<string, import("../format.js").Tone>} */
const STEP_TONES = { visited: "ok", current: "info", waiting: "warn", failed: "error" };
/** @type {Record<string, string>} */
const STEP_WORDS = { visited: "done", current: "running", waiting: "waiting", failed: "failed" };

/** @param {import("../views.js").ViewProps} props */
export default function WorkflowRun({ params, query }) {
  const name = params.name ?? "";
  const id = params.id ?? "";
  const { run, status } = useRun(id);
  const task = useJson(`tasks/${encodeURIComponent(id)}`);
  const version = run.version || "";
  const workflow = useJson(`workflows/${encodeURIComponent(name)}`, { version });
  const snapshot = task.data?.task;
  const state = run.state || snapshot?.task.status?.state;
  // The status's message and the answer are in the snapshot.
  useEffect(() => {
    if (run.state) task.reload();
  }, [run.state, run.isPaused]);

  const edges = workflow.data?.definition.edges ?? [];
  const states = useMemo(() => nodeStates(run), [run]);
  const followed = useMemo(() => followedEdges(run, edges), [run, edges]);
  const selected = query.get("node") ?? "";
  const error = workflow.error ?? task.error;
  const request = inputText(snapshot?.task.history?.[0]);
  const message = messageText(snapshot?.task.status?.message);
  return html`<div class="view workflow">
    <${PageHeader}
      title=${request ? (request.length > 100 ? `${request.slice(0, 99)}…` : request) : `Run of ${name}`}
      back=${{ href: href(["workflows", name], { tab: "runs" }), label: `Runs of ${name}` }}
      after=${html`${state && html`<${StateBadge} state=${state} />`}${run.isPaused && !hasEnded(state) && html`<${Badge} tone="warn">paused<//>`}<${LiveStatus} status=${status} />`}
    >
      <a class="button plain" href=${href(["tasks", id])}>Task</a>
      <a class="button plain" href=${href(["tasks", id, "trace"])}>Trace</a>
      ${!hasEnded(state) && html`<${RunActions} id=${id} isPaused=${run.isPaused} />`}
    <//>
    ${error && html`<${ErrorState} error=${error} onRetry=${() => { workflow.reload(); task.reload(); }} />`}
    <${WaitingApprovals} id=${id} approvals=${snapshot?.approvals ?? []} />
    ${message && html`<p class="status-message">${message}</p>`}
    <p class="row wrap muted small"><a href=${href(["workflows", name], { version })}>${name}${version && `, version ${version}`}</a> · started <${Time} value=${snapshot?.createTime} /> · <${Id} value=${id} /></p>
    ${workflow.data
      ? html`<${WorkflowGraph} definition=${workflow.data.definition} states=${states} followed=${followed} selected=${selected} onSelect=${(/** @type {string} */ node) => changeQuery({ node: node === selected ? "" : node })} label="Path of the run through the graph. The table of steps below says the same." />
          <${NodeList} definition=${workflow.data.definition} />`
      : !error && html`<${Loading} label="Loading the graph" />`}
    <${Steps} run=${run} node=${selected} />
  </div>`;
}

/** @param {{run: Run, node: string}} props */
function Steps({ run, node }) {
  const steps = node ? run.steps.filter((step) => step.node === node) : run.steps;
  /** @type {import("../components/table.js").Column<Step>[]} */
  const columns = [
    { key: "node", title: "Node", width: "minmax(90px, 1fr)", cell: (step) => html`<a class="row-link mono" href=${href(route.peek().segments, { node: step.node })}>${step.node}</a>` },
    { key: "state", title: "State", width: "90px", cell: (step) => html`<${Badge} tone=${STEP_TONES[stepState(step, run)]} live=${stepState(step, run) === "current"}>${STEP_WORDS[stepState(step, run)]}<//>` },
    { key: "label", title: "Way on", width: "90px", from: 480, cell: (step) => step.label || html`<span class="muted">–</span>` },
    { key: "summary", title: "Result", width: "minmax(100px, 3fr)", from: 620, cell: (step) => html`<span class="muted" title=${step.summary}>${step.summary}</span>` },
    { key: "took", title: "Took", width: "70px", align: "end", cell: (step) => (step.endedAt || !hasEnded(run.state) ? html`<${Elapsed} from=${step.startedAt} to=${step.endedAt || null} />` : "–") },
  ];
  const all = node && html`<button type="button" class="link" onClick=${() => changeQuery({ node: "" })}>Show all steps</button>`;
  return html`<${Panel} title=${node ? `Steps of ${node}` : "Steps"} flush class="run-steps" actions=${all}>
    ${steps.length
      ? html`<${Table} label="Steps of the run" columns=${columns} rows=${steps} rowKey=${(/** @type {Step} */ step) => String(step.sequence)} />`
      : html`<${Empty} icon="workflows" title=${node ? "This node has not run" : "No step yet"} />`}
  <//>`;
}

/** @param {{id: string, isPaused: boolean}} props */
function RunActions({ id, isPaused }) {
  const [busy, setBusy] = useState("");
  const [confirming, setConfirming] = useState(false);
  /** @param {"cancel" | "pause" | "resume"} action */
  const act = async (action) => {
    setConfirming(false);
    setBusy(action);
    try {
      await postJson(`tasks/${encodeURIComponent(id)}:${action}`);
      toast({ cancel: "The run is being canceled.", pause: "The run is paused: no further step begins.", resume: "The run goes on." }[action], "ok");
    } catch (error) {
      toast(asApiError(error).message, "error");
    }
    setBusy("");
  };
  return html`
    ${!isPaused && mayCall("PauseTask") && html`<${Button} icon="pause" busy=${busy === "pause"} onClick=${() => act("pause")}>Pause<//>`}
    ${isPaused && mayCall("ResumeTask") && html`<${Button} icon="play" busy=${busy === "resume"} onClick=${() => act("resume")}>Resume<//>`}
    ${mayCall("CancelTask") && html`<${Button} kind="danger" icon="stop" busy=${busy === "cancel"} onClick=${() => setConfirming(true)}>Cancel run<//>`}
    ${confirming &&
    html`<${Dialog}
      title="Cancel this run?"
      onClose=${() => setConfirming(false)}
      actions=${html`<${Button} onClick=${() => setConfirming(false)}>Keep it running<//><${Button} kind="danger" onClick=${() => act("cancel")}>Cancel run<//>`}
    >
      The run and the tasks it called stop. What they have written stays.
    <//>`}
  `;
}
