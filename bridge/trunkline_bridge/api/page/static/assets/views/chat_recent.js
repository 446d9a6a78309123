/** The conversations of late, each by its newest task. */

import { Empty, ErrorState, Loading, StateBadge, Time } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { href } from "../router.js";
import { useJson } from "../store/hooks.js";
import { html } from "../vendor/preact.js";

/** @typedef {import("../store/task_rows.js").TaskRow} TaskRow */

/** @param {{agent: string, onClose: () => void}} props */
export function RecentConversations({ agent, onClose }) {
  const { data, error, loading, reload } = useJson("tasks", { agent, pageSize: 100 });
  const seen = new Set();
  /** @type {TaskRow[]} */
  const newest = (data?.tasks ?? []).filter((/** @type {TaskRow} */ row) => {
    if (row.parentTaskId || seen.has(row.contextId)) return false;
    seen.add(row.contextId);
    return true;
  });
  return html`<${Dialog} title=${`Recent conversations with ${agent}`} onClose=${onClose}>
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} />`}
    ${loading && !data && html`<${Loading} />`}
    ${data && !newest.length && html`<${Empty} title="None yet" />`}
    <ul class="stack">
      ${newest.slice(0, 30).map(
        (row) => html`<li class="row" key=${row.id}>
          <a class="row-link grow truncate" href=${href(["chat"], { agent: row.agent, task: row.id })} onClick=${onClose}>${row.text || "No text"}</a>
          <${StateBadge} state=${row.state} /><${Time} value=${row.createdAt} />
        </li>`,
      )}
    </ul>
  <//>`;
}
