/** Parts of a task's state: artifacts, plans, children, tool calls, approvals. */

import { getJson, postJson } from "../api.js";
import { Badge, Button, CopyButton, Empty, Id, Loading, StateBadge } from "../components/basics.js";
import { Field } from "../components/fields.js";
import { Icon } from "../components/icons.js";
import { JsonView } from "../components/json_view.js";
import { toast } from "../components/toasts.js";
import { bytes, enumName, percent } from "../format.js";
import { parseJson } from "../json.js";
import { href } from "../router.js";
import { asApiError } from "../store/hooks.js";
import { mayCall } from "../store/session.js";
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";

const SHOWN_CHARACTERS = 20_000;

/** @param {{artifacts: any[], infos: any[], ended: boolean}} props */
export function Artifacts({ artifacts, infos, ended }) {
  if (!artifacts.length) return html`<${Empty} icon="file" title=${ended ? "No artifacts" : "No artifacts yet"}>${ended ? "The task ended without one." : "What the task writes appears here."}<//>`;
  return html`<div class="stack">
    ${artifacts.map((artifact, index) => {
      const info = infos[index] ?? {};
      const kind = enumName(info.kind, "ARTIFACT_KIND_");
      const name = artifact.name || (kind && kind !== "unspecified" ? kind : artifact.artifactId);
      const text = (artifact.parts ?? []).map((/** @type {any} */ part) => part.text ?? "").join("");
      return html`<article class="artifact" key=${`${info.origin?.taskId ?? ""} ${artifact.artifactId}`}>
        <div class="row"><h3 class="truncate">${name}</h3>
          ${kind && kind !== "unspecified" && kind !== name && html`<span class="tag">${kind}</span>`}
          ${info.origin && html`<span class="tag">${info.origin.agent}</span>`}
          <span class="grow"></span>
          ${!info.closed && !ended && html`<${Badge} tone="info" live>writing<//>`}
          ${text && html`<${CopyButton} text=${text} what="the text" />`}
        </div>
        ${artifact.description && html`<p class="muted small">${artifact.description}</p>`}
        <${Parts} parts=${artifact.parts ?? []} />
      </article>`;
    })}
  </div>`;
}

/** @param {{parts: any[]}} props */
function Parts({ parts }) {
  // Streamed texts are many parts or one: a reader sees one text.
  const joined = useMemo(() => {
    /** @type {any[]} */
    const result = [];
    for (const part of parts) {
      const before = result.at(-1);
      if (part.text !== undefined && before?.text !== undefined && !part.filename) before.text += part.text;
      else result.push({ ...part });
    }
    return result;
  }, [parts]);
  return joined.map((part, index) => html`<${Part} key=${index} part=${part} />`);
}

/** @param {{part: any}} props */
function Part({ part }) {
  const [whole, setWhole] = useState(false);
  if (part.text !== undefined) {
    const isCut = !whole && part.text.length > SHOWN_CHARACTERS;
    return html`<div class="artifact-text">${isCut ? `${part.text.slice(0, SHOWN_CHARACTERS)}…` : part.text}</div>
      ${isCut && html`<button type="button" class="link" onClick=${() => setWhole(true)}>Show all</button>`}`;
  }
  if (part.data !== undefined) return html`<${JsonView} value=${part.data} open=${2} />`;
  const name = part.filename || part.mediaType || "file";
  if (part.url !== undefined) return html`<div class="row"><${Icon} name="file" /><span class="truncate">${name}</span><span class="muted small truncate">${part.url}</span></div>`;
  const size = Math.floor(((part.raw ?? "").length * 3) / 4);
  return html`<div class="row"><${Icon} name="file" /><span class="truncate">${name}</span><span class="muted small">${bytes(size)}</span>
    <${Button} onClick=${() => download(part, name)}>Download<//></div>`;
}

/**
 * @param {{raw: string, mediaType?: string}} part
 * @param {string} name
 */
function download(part, name) {
  const binary = atob(part.raw.replaceAll("-", "+").replaceAll("_", "/"));
  const content = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {{plans: any[], routes: any[]}} props */
export function Plans({ plans, routes }) {
  return html`<div class="stack">
    ${plans.map(
      (plan) => html`<section key=${plan.planId}>
        <div class="row"><h3 class="grow">Plan</h3>${plan.revision > 1 && html`<span class="tag">revision ${plan.revision}</span>`}</div>
        ${plan.steps?.length
          ? html`<ol class="steps">${plan.steps.map(
              (/** @type {any} */ step) => html`<li key=${step.stepId}>
                <div class="row"><span class="mono small muted">${step.stepId}</span><span class="grow">${step.text}</span>${step.agent && html`<span class="tag">${step.agent}</span>`}</div>
                ${step.after?.length > 0 && html`<div class="muted small">after ${step.after.join(", ")}</div>`}
              </li>`,
            )}</ol>`
          : html`<div class="artifact-text">${plan.text}</div>`}
      </section>`,
    )}
    ${routes.map(
      (route, index) => html`<section key=${index}>
        <div class="row"><h3 class="grow">${route.text}</h3><span class="tag">${route.agent || "no agent"}</span><span class="muted small">${percent(route.confidence ?? 0)}</span></div>
        <p class="muted small">${(route.reasons ?? []).join(", ")}</p>
        ${(route.scores ?? []).length > 1 &&
        html`<ul class="scores">${route.scores.map(
          (/** @type {any} */ score) => html`<li key=${score.agent}><span class="truncate">${score.agent}</span>
            <meter min="0" max="1" value=${score.confidence ?? 0} aria-label=${`Confidence of ${score.agent}`}></meter>
            <span class="number small">${percent(score.confidence ?? 0)}</span></li>`,
        )}</ul>`}
      </section>`,
    )}
  </div>`;
}

/**
 * The tasks that a task called, as a tree that loads deeper levels when they are opened.
 * @param {{children: any[]}} props
 */
export function ChildTree({ children }) {
  return html`<ul class="tree">${children.map((child) => html`<${Child} key=${child.started?.taskId} child=${child} />`)}</ul>`;
}

/** @param {{child: any}} props */
function Child({ child }) {
  const { taskId, agent, stepId } = child.started ?? {};
  const [isOpen, setOpen] = useState(false);
  const [below, setBelow] = useState(/** @type {any[] | null} */ (null));
  const state = child.finished?.state ?? "working";
  useEffect(() => {
    if (!isOpen || below) return undefined;
    const abort = new AbortController();
    getJson(`tasks/${encodeURIComponent(taskId)}`, { signal: abort.signal }).then(
      (answer) => setBelow(answer.task.children ?? []),
      (error) => {
        if (abort.signal.aborted) return;
        toast(asApiError(error).message, "error");
        setOpen(false);
      },
    );
    return () => abort.abort();
  }, [isOpen, below, taskId]);
  return html`<li>
    <div class="row">
      <button type="button" class="tree-toggle" aria-expanded=${String(isOpen)} aria-label=${`Children of ${agent}`} onClick=${() => setOpen(!isOpen)}><${Icon} name="chevron" size=${12} /></button>
      <a class="row-link" href=${href(["tasks", taskId])}>${agent}</a>
      ${stepId && html`<span class="muted small mono truncate">${stepId}</span>`}
      <span class="grow"></span>
      <${Id} value=${taskId} link=${href(["tasks", taskId])} />
      <${StateBadge} state=${state} />
    </div>
    ${child.finished?.text && html`<p class="muted small clamp tree-text">${child.finished.text}</p>`}
    ${isOpen && (below ? (below.length ? html`<${ChildTree} children=${below} />` : html`<p class="muted small tree-text">It called no other task.</p>`) : html`<${Loading} />`)}
  </li>`;
}

/** @param {{calls: any[]}} props */
export function ToolCalls({ calls }) {
  return html`<ul class="stack">
    ${calls.map(({ started, finished }) => {
      const [tone, word] = !finished ? ["info", "running"] : finished.isError ? ["error", "failed"] : ["ok", "returned"];
      return html`<li class="artifact" key=${started.callId}>
        <div class="row"><${Icon} name="tool" size=${14} /><h3 class="mono grow truncate">${started.tool}</h3><${Badge} tone=${tone} live=${!finished}>${word}<//></div>
        <${JsonView} value=${started.arguments ?? {}} open=${1} />
        ${finished?.summary && html`<p class="muted small">${finished.summary}</p>`}
      </li>`;
    })}
  </ul>`;
}

/**
 * Says which calls wait for an approval, and leads there; nothing if none waits.
 * @param {{id: string, approvals: any[]}} props
 */
export function WaitingApprovals({ id, approvals }) {
  const waiting = approvals.filter((approval) => !approval.answered);
  if (!waiting.length) return null;
  return html`<div class="notice warn row"><span class="grow">${waiting.map((each) => each.requested?.tool).join(", ")}: waits for approval.</span>
    <a class="button" href=${href(["tasks", id], { tab: "approvals" })}>Review</a></div>`;
}

/** @param {{approvals: any[], taskId: string, canAnswer: boolean, onAnswered: () => void}} props */
export function Approvals({ approvals, taskId, canAnswer, onAnswered }) {
  return html`<ul class="stack">
    ${approvals.map(({ requested, answered }) => {
      const decision = enumName(answered?.decision, "APPROVAL_DECISION_");
      return html`<li class="artifact" key=${requested.approvalId}>
        <div class="row"><${Icon} name="approvals" size=${14} /><h3 class="mono grow truncate">${requested.tool}</h3>
          <${Badge} tone=${!answered ? "warn" : decision === "rejected" ? "error" : "ok"}>${answered ? decision : "waiting"}<//>
        </div>
        ${requested.path?.length > 1 && html`<p class="muted small">${requested.path.join(" › ")}</p>`}
        ${answered || !canAnswer || !mayCall("SendMessage")
          ? html`<${JsonView} value=${answered?.arguments ?? requested.arguments ?? {}} open=${2} />`
          : html`<${ApprovalForm} taskId=${taskId} approvalId=${requested.approvalId} args=${requested.arguments ?? {}} onAnswered=${onAnswered} />`}
        ${answered && (answered.user || answered.reason) && html`<p class="muted small">${[answered.user, answered.reason].filter(Boolean).join(": ")}</p>`}
      </li>`;
    })}
  </ul>`;
}

/**
 * Approves a call as it is or with other arguments, or rejects it.
 * @param {{taskId: string, approvalId: string, args: any, onAnswered: () => void}} props
 */
export function ApprovalForm({ taskId, approvalId, args, onAnswered }) {
  const original = JSON.stringify(args, null, 2);
  const [text, setText] = useState(original);
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState("");
  const parsed = useMemo(() => {
    try {
      return { value: parseJson(text) };
    } catch (error) {
      return { problem: /** @type {Error} */ (error).message };
    }
  }, [text]);
  const isEdited = text !== original;
  /** @param {"approved" | "edited" | "rejected"} decision */
  const answer = async (decision) => {
    setBusy(decision);
    try {
      const body = { decision, ...(decision === "edited" ? { arguments: parsed.value } : {}), ...(reason ? { reason } : {}) };
      await postJson(`tasks/${encodeURIComponent(taskId)}/approvals/${encodeURIComponent(approvalId)}:answer`, body);
      toast(decision === "rejected" ? "Rejected." : "Approved.", "ok");
      onAnswered();
    } catch (error) {
      toast(asApiError(error).message, "error");
    }
    setBusy("");
  };
  return html`<div class="stack">
    <${Field} label="Arguments">
      ${(/** @type {string} */ id) => html`<textarea id=${id} class="mono" rows=${Math.min(12, text.split("\n").length + 1)} spellcheck=${false} value=${text} aria-invalid=${parsed.problem ? "true" : "false"} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>`}
    <//>
    ${parsed.problem && html`<p class="error-text small" role="alert">${parsed.problem}</p>`}
    <${Field} label="Reason (optional)">
      ${(/** @type {string} */ id) => html`<input id=${id} class="input" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)} />`}
    <//>
    <div class="row wrap">
      <${Button} kind="primary" icon="check" disabled=${Boolean(parsed.problem)} busy=${Boolean(busy)} onClick=${() => answer(isEdited ? "edited" : "approved")}>${isEdited ? "Approve with changes" : "Approve"}<//>
      <${Button} kind="danger" busy=${Boolean(busy)} onClick=${() => answer("rejected")}>Reject<//>
      ${isEdited && html`<${Button} kind="quiet" onClick=${() => setText(original)}>Undo changes<//>`}
    </div>
  </div>`;
}
