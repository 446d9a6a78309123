/** Webhooks: their deliveries and failures, and sending them again. */

import { postJson } from "../api.js";
import { Badge, Button, Empty, ErrorState, Facts, Id, LiveStatus, Loading, PageHeader, Time } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { Select } from "../components/fields.js";
import { Table } from "../components/table.js";
import { toast } from "../components/toasts.js";
import { plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { asApiError } from "../store/hooks.js";
import { mayCall } from "../store/session.js";
import { useWebhooks } from "../store/webhook_rows.js";
import { html, useState } from "../vendor/preact.js";

/** @typedef {import("../store/webhook_rows.js").Webhook} Webhook */

/** @type {Record<string, [import("../format.js").Tone, string]>} */
const STATES = {
  idle: ["neutral", "Everything is sent; the task may go on."],
  pending: ["info", "Events are being sent."],
  waiting: ["warn", "The last attempt failed; the next one is planned."],
  dead: ["error", "Given up. Send it again when the receiver works."],
  done: ["ok", "The task has ended and everything is sent."],
};

/** @type {import("../components/table.js").Column<Webhook>[]} */
const COLUMNS = [
  { key: "state", title: "State", width: "96px", cell: (row) => html`<${State} state=${row.state} />` },
  { key: "url", title: "URL", width: "minmax(120px, 2fr)", cell: (row) => html`<a class="row-link" href=${href(["webhooks"], { ...currentFilter(), webhook: row.id })} title=${row.url}>${row.url}</a>` },
  { key: "error", title: "Last error", width: "minmax(100px, 2fr)", from: 900, cell: (row) => html`<span class="error-text" title=${row.lastError}>${row.lastError}</span>` },
  { key: "agent", title: "Agent", width: "minmax(80px, 130px)", from: 560, cell: (row) => row.agent },
  { key: "task", title: "Task", width: "110px", from: 700, cell: (row) => html`<${Id} value=${row.taskId} link=${href(["tasks", row.taskId])} />` },
  { key: "sent", title: "Sent", width: "60px", from: 480, align: "end", cell: (row) => row.sentEventId || html`<span class="muted">–</span>` },
  { key: "attempts", title: "Failed", width: "60px", from: 620, align: "end", cell: (row) => row.attempts },
  { key: "created", title: "Created", width: "80px", from: 420, align: "end", cell: (row) => html`<${Time} value=${row.createdAt} />` },
];

function currentFilter() {
  const query = new URLSearchParams(location.hash.split("?")[1] ?? "");
  return { state: query.get("state"), taskId: query.get("taskId") };
}

/** @param {{state: string}} props */
function State({ state }) {
  const [tone, meaning] = STATES[state] ?? ["neutral", ""];
  return html`<${Badge} tone=${tone} title=${meaning}>${state}<//>`;
}

/** @param {import("../views.js").ViewProps} props */
export default function Webhooks({ query }) {
  const state = query.get("state") ?? "";
  const taskId = query.get("taskId") ?? "";
  const { rows, next, first, loading, error, status, chosen, loadMore, reload } = useWebhooks({ state, taskId }, query.get("webhook") ?? "");
  const close = () => changeQuery({ webhook: "" });
  return html`<div class="view full">
    <${PageHeader} title="Webhooks" after=${html`<${LiveStatus} status=${status} />`} />
    <div class="toolbar" role="search" aria-label="Webhooks">
      <${Select} label="State" all="Any state" value=${state} options=${Object.keys(STATES)} onChange=${(/** @type {string} */ value) => changeQuery({ state: value })} />
      ${taskId && html`<${Badge}>task ${taskId.slice(-10)}<//><${Button} kind="quiet" icon="close" onClick=${() => changeQuery({ taskId: "" })}>Clear<//>`}
      <span class="grow"></span>
      <span class="muted small" role="status">${rows.length ? `${plural(rows.length, "webhook")}${next ? " loaded" : ""}` : ""}</span>
    </div>
    ${first?.isIncomplete && html`<p class="notice warn">Some hosts did not answer. Their webhooks are missing here.</p>`}
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} title="The webhooks could not be loaded" />`}
    ${rows.length > 0 && html`<${Table} label="Webhooks" columns=${COLUMNS} rows=${rows} rowKey=${(/** @type {Webhook} */ row) => row.id} onEnd=${loadMore} selected=${chosen?.id} />`}
    ${!rows.length && loading && !first && html`<${Loading} label="Loading webhooks" />`}
    ${!rows.length && (first || !loading) && !error && html`<${Empty} icon="webhooks" title=${state || taskId ? "No webhook matches" : "No webhooks yet"}>A client registers one with its message. Its deliveries appear here.<//>`}
    ${chosen && html`<${Details} webhook=${chosen} onClose=${close} />`}
  </div>`;
}

/** @param {{webhook: Webhook, onClose: () => void}} props */
function Details({ webhook, onClose }) {
  const [busy, setBusy] = useState("");
  const mayReplay = mayCall("CreateTaskPushNotificationConfig");
  /** @param {boolean} fromStart */
  const replay = async (fromStart) => {
    setBusy(String(fromStart));
    try {
      await postJson(`webhooks/${encodeURIComponent(webhook.id)}:replay`, { fromStart });
      toast("It is being sent again.", "ok");
    } catch (error) {
      toast(asApiError(error).message, "error");
    }
    setBusy("");
  };
  const actions = mayReplay
    ? html`<${Button} busy=${busy === "true"} onClick=${() => replay(true)}>Send all events again<//><${Button} kind="primary" icon="refresh" busy=${busy === "false"} onClick=${() => replay(false)}>Send the rest again<//>`
    : html`<span class="muted small">Your credentials do not allow sending it again.</span>`;
  return html`<${Dialog} title="Webhook" onClose=${onClose} actions=${actions} wide>
    <div class="stack">
      <div class="row wrap"><${State} state=${webhook.state} /><span class="muted">${STATES[webhook.state]?.[1]}</span></div>
      ${webhook.lastError && html`<p class="notice error">${webhook.lastError}</p>`}
      <${Facts}
        items=${[
          ["URL", webhook.url],
          ["Agent", webhook.agent],
          ["Task", html`<${Id} value=${webhook.taskId} link=${href(["tasks", webhook.taskId])} />`],
          ["Configuration", html`<${Id} value=${webhook.configId} />`],
          ["Version of A2A", webhook.version],
          webhook.account && ["Account", webhook.account],
          ["Sent up to event", webhook.sentEventId || "none"],
          ["Failed attempts", String(webhook.attempts)],
          webhook.failingSince && ["Failing since", html`<${Time} value=${webhook.failingSince} />`],
          webhook.nextAttemptAt && ["Next attempt", new Date(webhook.nextAttemptAt).toLocaleTimeString("en-GB")],
          ["Created", html`<${Time} value=${webhook.createdAt} />`],
        ]}
      />
    </div>
  <//>`;
}
