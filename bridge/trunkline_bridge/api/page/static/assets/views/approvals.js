/** The calls that wait for a decision, live, each with its form. */

import { Badge, Empty, Facts, Id, LiveStatus, Loading, PageHeader, Panel, Time } from "../components/basics.js";
import { Select } from "../components/fields.js";
import { JsonView } from "../components/json_view.js";
import { plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { approvalsStatus, hideAnswered, openApprovals, waitingApprovals } from "../store/approvals.js";
import { mayCall } from "../store/session.js";
import { html } from "../vendor/preact.js";
import { ApprovalForm } from "./task_parts.js";

/** @typedef {import("../store/approvals.js").OpenApproval} OpenApproval */

/** @param {import("../views.js").ViewProps} props */
export default function Approvals({ query }) {
  const open = openApprovals.value;
  const status = approvalsStatus.value;
  const agent = query.get("agent") ?? "";
  const all = waitingApprovals.value;
  const shown = all.filter((each) => !agent || each.agent === agent);
  const agents = [...new Set([...all.map((each) => each.agent), ...(agent ? [agent] : [])])].sort();
  return html`<div class="view">
    <${PageHeader} title="Approvals" after=${mayCall("GetTask") && html`<${LiveStatus} status=${status} />`}>
      ${agents.length > 0 && html`<${Select} label="Agent" all="Any agent" value=${agent} options=${agents} onChange=${(/** @type {string} */ chosen) => changeQuery({ agent: chosen })} />`}
      <span class="muted small" role="status">${shown.length ? `${plural(shown.length, "call")} to decide` : ""}</span>
    <//>
    ${open?.isIncomplete && html`<p class="notice warn">Some hosts did not answer. Their approvals are missing here.</p>`}
    ${!mayCall("GetTask") && html`<p class="notice">Your credentials do not allow reading tasks. It needs GetTask.</p>`}
    ${!open && mayCall("GetTask") && status.state !== "failed" && html`<${Loading} label="Loading approvals" />`}
    ${!open && status.state === "failed" && html`<p class="notice error" role="alert">${status.error?.message}</p>`}
    ${open && !shown.length && html`<${Empty} icon="approvals" title="Nothing waits for a decision">A tool call that needs approval appears here at once, with its arguments.<//>`}
    <div class="approval-list">
      ${shown.map((approval) => html`<${Waiting} key=${approval.approvalId} approval=${approval} onAnswered=${() => hideAnswered(approval.approvalId)} />`)}
    </div>
  </div>`;
}

/** @param {{approval: OpenApproval, onAnswered: () => void}} props */
function Waiting({ approval, onAnswered }) {
  return html`<${Panel} title=${html`<span class="mono">${approval.tool}</span>`} actions=${html`<${Badge} tone="warn">waiting <${Time} value=${approval.createdAt} /><//>`}>
    <div class="stack">
      <${Facts}
        items=${[
          ["Agent", approval.agent],
          approval.path.length > 1 && ["Asked by", approval.path.join(" › ")],
          ["Task", html`<${Id} value=${approval.taskId} link=${href(["tasks", approval.taskId], { tab: "approvals" })} />`],
          ["Chat", html`<a href=${href(["chat"], { agent: approval.agent, task: approval.taskId })}>Open the conversation</a>`],
        ]}
      />
      ${mayCall("SendMessage")
        ? html`<${ApprovalForm} taskId=${approval.taskId} approvalId=${approval.approvalId} args=${approval.arguments ?? {}} onAnswered=${onAnswered} />`
        : html`<${JsonView} value=${approval.arguments ?? {}} /><p class="muted small">Your credentials do not allow an answer. It needs SendMessage.</p>`}
    </div>
  <//>`;
}
