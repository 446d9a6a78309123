/** The list of tasks: filtered, searched, live. */

import { Badge, Button, Elapsed, Empty, ErrorState, Id, LiveStatus, Loading, PageHeader, StateBadge, Time } from "../components/basics.js";
import { Search, Select } from "../components/fields.js";
import { Table } from "../components/table.js";
import { TASK_STATES, hasEnded, plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { useAgents } from "../store/mesh.js";
import { useTaskRows } from "../store/task_rows.js";
import { mayCall } from "../store/session.js";
import { html, useMemo } from "../vendor/preact.js";

/** @typedef {import("../store/task_rows.js").TaskRow} TaskRow */

const PERIODS = [
  { value: "15m", label: "Last 15 minutes" },
  { value: "1h", label: "Last hour" },
  { value: "24h", label: "Last 24 hours" },
  { value: "7d", label: "Last 7 days" },
];
/** @type {Record<string, number>} */
const PERIOD_MS = { "15m": 900_000, "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000 };

/** @type {import("../components/table.js").Column<TaskRow>[]} */
const COLUMNS = [
  { key: "state", title: "State", width: "132px", cell: (row) => html`<${StateBadge} state=${row.state} />${row.outcome === "partial" && html` <span class="tag">partial</span>`}` },
  {
    key: "text",
    title: "Request",
    width: "minmax(120px, 3fr)",
    cell: (row) => html`<a class="row-link" href=${href(["tasks", row.id])} title=${row.text}>${row.text || "No text"}</a>`,
  },
  { key: "agent", title: "Agent", width: "minmax(90px, 150px)", from: 520, cell: (row) => row.agent },
  { key: "id", title: "Task", width: "110px", from: 760, cell: (row) => html`<span class="id" title=${row.id}>${row.id.slice(-12)}</span>` },
  {
    key: "parent",
    title: "Parent",
    width: "110px",
    from: 1400,
    cell: (row) => (row.parentTaskId ? html`<${Id} value=${row.parentTaskId} link=${href(["tasks", row.parentTaskId])} />` : html`<span class="muted">–</span>`),
  },
  {
    key: "took",
    title: "Took",
    width: "80px",
    from: 900,
    align: "end",
    cell: (row) => html`<${Elapsed} from=${row.createdAt} to=${hasEnded(row.state) ? row.updatedAt : null} />`,
  },
  { key: "created", title: "Created", width: "80px", from: 420, align: "end", cell: (row) => html`<${Time} value=${row.createdAt} />` },
];

/** @param {import("../views.js").ViewProps} props */
export default function Tasks({ query }) {
  const period = query.get("since") ?? "";
  // Computed when the period is chosen: a start that moves on each render would load the list again and again.
  const since = useMemo(() => (PERIOD_MS[period] ? new Date(Date.now() - PERIOD_MS[period]).toISOString() : ""), [period]);
  const filter = {
    agent: query.get("agent") ?? "",
    state: query.get("state") ?? "",
    text: query.get("text") ?? "",
    contextId: query.get("contextId") ?? "",
    since,
  };
  const mayList = mayCall("ListTasks");
  const { rows, next, first, loading, error, status, loadMore, retry } = useTaskRows(mayList ? filter : null);
  const agents = useAgents();
  const isFiltered = Boolean(filter.agent || filter.state || filter.text || filter.contextId || period);
  const clear = () => changeQuery({ agent: "", state: "", text: "", contextId: "", since: "" });
  if (!mayList) {
    return html`<div class="view full">
      <${PageHeader} title="Tasks" />
      <p class="notice">Your credentials do not allow listing tasks. It needs ListTasks.</p>
    </div>`;
  }

  return html`<div class="view full">
    <${PageHeader} title="Tasks" after=${html`<${LiveStatus} status=${status} />`} />
    <div class="toolbar" role="search" aria-label="Tasks">
      <${Search} label="Search text or id" value=${filter.text} onChange=${(/** @type {string} */ text) => changeQuery({ text })} />
      <${Select} label="State" all="Any state" value=${filter.state} options=${TASK_STATES} onChange=${(/** @type {string} */ state) => changeQuery({ state })} />
      <${Select} label="Agent" all="Any agent" value=${filter.agent} options=${agents} onChange=${(/** @type {string} */ agent) => changeQuery({ agent })} />
      <${Select} label="Created" all="Any time" value=${period} options=${PERIODS} onChange=${(/** @type {string} */ chosen) => changeQuery({ since: chosen })} />
      ${filter.contextId && html`<${Badge}>conversation ${filter.contextId.slice(-10)}<//>`}
      ${isFiltered && html`<${Button} kind="quiet" icon="close" onClick=${clear}>Clear<//>`}
      <span class="grow"></span>
      <span class="muted small" role="status">${rows.length ? `${plural(rows.length, "task")}${next ? " loaded" : ""}` : ""}</span>
    </div>
    ${first?.isIncomplete && html`<p class="notice warn">Some hosts did not answer. Their tasks are missing here.</p>`}
    ${error && html`<${ErrorState} error=${error} onRetry=${retry} title="The tasks could not be loaded" />`}
    ${rows.length
      ? html`<${Table}
          label="Tasks"
          columns=${COLUMNS}
          rows=${rows}
          rowKey=${(/** @type {TaskRow} */ row) => row.id}
          onEnd=${loadMore}
          footer=${loading && html`<${Loading} label="Loading more" />`}
        />`
      : loading || (next && !error)
        ? html`<${Loading} label=${isFiltered ? "Searching the tasks" : "Loading tasks"} />`
        : !error &&
          html`<${Empty} icon="tasks" title=${isFiltered ? "No task matches" : "No tasks yet"}>
            ${isFiltered ? html`<button type="button" class="link" onClick=${clear}>Clear the filters</button>` : "Ask an agent, and its task appears here."}
          <//>`}
  </div>`;
}
