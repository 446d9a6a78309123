/** The activity of a task as it happens: plan, routing with its reasons, tool calls, other agents, approvals. */

import { Badge } from "../components/basics.js";
import { Icon } from "../components/icons.js";
import { JsonView } from "../components/json_view.js";
import { hasEnded, plural } from "../format.js";
import { href } from "../router.js";
import { mayCall } from "../store/session.js";
import { useTask } from "../store/task.js";
import { html, useState } from "../vendor/preact.js";
import { ApprovalForm } from "./task_parts.js";

/** @typedef {import("../store/task_events.js").TimelineEntry} TimelineEntry */

const SHOWN = new Set([
  ...["plan", "routeDecided", "toolStarted", "toolFinished", "toolTaskStarted", "childStarted", "childFinished"],
  ...["approvalRequested", "approvalAnswered", "stepStarted", "stepFinished", "rewound"],
]);
const MOST_LINES = 300;

/**
 * The activity of a task: open while it runs; of a task that has ended, it is loaded when it is opened.
 * @param {{taskId: string, isOver: boolean}} props
 */
export function Activity({ taskId, isOver }) {
  const [wasLive] = useState(!isOver);
  const [isOpen, setOpen] = useState(!isOver);
  const [isLoaded, setLoaded] = useState(!isOver);
  const toggle = () => {
    setOpen(!isOpen);
    setLoaded(true);
  };
  if (!isLoaded) return html`<${Toggle} isOpen=${false} onClick=${toggle} label="What happened" />`;
  return html`<${Lines} taskId=${taskId} isOpen=${isOpen} onToggle=${toggle} isQuiet=${wasLive} />`;
}

/** @param {{isOpen: boolean, onClick: () => void, label: string}} props */
function Toggle({ isOpen, onClick, label }) {
  return html`<button type="button" class="activity-toggle" aria-expanded=${String(isOpen)} onClick=${onClick}><${Icon} name="chevron" size=${12} />${label}</button>`;
}

/** @param {{taskId: string, isOpen: boolean, onToggle: () => void, isQuiet: boolean}} props isQuiet: nothing is shown before something happens. */
function Lines({ taskId, isOpen, onToggle, isQuiet }) {
  const { current, entries, error, reload } = useTask(taskId, null);
  const lines = selectLines(entries);
  const waiting = (current?.approvals ?? []).filter((/** @type {any} */ approval) => !approval.answered);
  const isOver = hasEnded(current?.task.status?.state);
  const calls = lines.filter((line) => line.kind === "toolStarted").length;
  const label = ["What happened", lines.length ? plural(lines.length, "event") : "", calls ? plural(calls, "tool call") : ""].filter(Boolean).join(" · ");
  if (error && !current) return null;
  return html`
    ${(lines.length > 0 || !isQuiet) && html`<${Toggle} isOpen=${isOpen} onClick=${onToggle} label=${label} />`}
    ${isOpen &&
    lines.length > 0 &&
    html`<ol class="activity" aria-label="What happened">
      ${lines.length > MOST_LINES && html`<li class="muted small"><a href=${href(["tasks", taskId])}>${plural(lines.length - MOST_LINES, "earlier event")}</a></li>`}
      ${lines.slice(-MOST_LINES).map((line) => html`<${Line} key=${`${line.first}`} line=${line} />`)}
    </ol>`}
    ${isOpen && !lines.length && current && !isQuiet && html`<p class="muted small activity">It answered without a plan, other agents or tools.</p>`}
    ${!isOver &&
    waiting.map(
      (/** @type {any} */ { requested }) => html`<section class="waiting stack" key=${requested.approvalId} aria-label=${`Approval of ${requested.tool}`}>
        <div class="row wrap"><${Icon} name="approvals" /><strong class="mono">${requested.tool}</strong><${Badge} tone="warn">waits for approval<//>
          ${requested.path?.length > 1 && html`<span class="muted small">${requested.path.join(" › ")}</span>`}</div>
        ${mayCall("SendMessage")
          ? html`<${ApprovalForm} taskId=${taskId} approvalId=${requested.approvalId} args=${requested.arguments ?? {}} onAnswered=${reload} />`
          : html`<${JsonView} value=${requested.arguments ?? {}} /><p class="muted small">Your credentials do not allow an answer.</p>`}
      </section>`,
    )}
  `;
}

/**
 * Returns the lines that say something of their own: not the texts of a plan that has its steps, nor calls of agents twice.
 * @param {TimelineEntry[]} entries
 */
function selectLines(entries) {
  const plans = new Set(entries.filter((entry) => entry.event.steps?.length).map((entry) => entry.event.planId));
  const agents = new Set(entries.filter((entry) => entry.kind === "childStarted").map((entry) => entry.event.agent));
  return entries.filter(({ kind, event }) => {
    if (kind === "plan") return event.steps?.length || !plans.has(event.planId);
    if (kind === "toolStarted") return !agents.has(event.tool);
    if (kind === "toolFinished") return event.isError || !agents.has(event.tool);
    return SHOWN.has(kind);
  });
}

/** @param {{line: TimelineEntry}} props */
function Line({ line }) {
  const { event, kind } = line;
  const steps = kind === "plan" ? (event.steps ?? []) : [];
  return html`<li class="activity-line">
    <span class="activity-icon ${line.tone}"><${Icon} name=${line.icon} size=${12} /></span>
    <div class="grow">
      <div class="row wrap"><span>${line.title}</span>${line.agent && html`<span class="tag">${line.agent}</span>`}
        ${(kind === "childStarted" || kind === "childFinished") && html`<a class="small" href=${href(["tasks", event.taskId])}>Task</a>`}</div>
      ${steps.length > 0
        ? html`<ol class="activity-steps">${steps.map((/** @type {any} */ step) => html`<li key=${step.stepId}>${step.text}${step.agent && html` <span class="tag">${step.agent}</span>`}</li>`)}</ol>`
        : line.detail && kind !== "childStarted" && html`<div class="muted small clamp" title=${line.detail.slice(0, 400)}>${line.detail.slice(0, 400)}</div>`}
    </div>
  </li>`;
}
