/** The audit log: who did what, with which outcome. For operators. */

import { Badge, Button, Empty, ErrorState, LiveStatus, Loading, PageHeader, Time } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { Search, Select } from "../components/fields.js";
import { JsonView } from "../components/json_view.js";
import { Table } from "../components/table.js";
import { plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { useAuditRows } from "../store/audit_rows.js";
import { session } from "../store/session.js";
import { html, useMemo, useState } from "../vendor/preact.js";

/** @typedef {import("../store/audit_rows.js").AuditRecord} AuditRecord */

const PERIODS = [
  { value: "15m", label: "Last 15 minutes" },
  { value: "1h", label: "Last hour" },
  { value: "24h", label: "Last 24 hours" },
  { value: "7d", label: "Last 7 days" },
];
/** @type {Record<string, number>} */
const PERIOD_MS = { "15m": 900_000, "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000 };
// Patterns of the actions that people look for; any other can be typed into the URL.
const ACTIONS = ["caller.*", "message.*", "task.*", "approval.*", "envelope.*", "room.*", "workflow.*", "webhook.*", "file.*", "agent.*"];

/** @param {import("../views.js").ViewProps} props */
export default function Audit({ query }) {
  if (!session.value?.isOperator) {
    return html`<div class="view"><${PageHeader} title="Audit" /><${Empty} icon="audit" title="Only operators see the audit log">An account is one by the setting operators of [page].<//></div>`;
  }
  return html`<${Log} query=${query} />`;
}

/** @param {{query: URLSearchParams}} props */
function Log({ query }) {
  const period = query.get("since") ?? "";
  const since = useMemo(() => (PERIOD_MS[period] ? new Date(Date.now() - PERIOD_MS[period]).toISOString() : ""), [period]);
  const text = (/** @type {string} */ name) => query.get(name) ?? "";
  const filter = { account: text("account"), action: text("action"), outcome: text("outcome"), task: text("task") };
  const { rows, next, first, loading, error, status, loadMore, reload } = useAuditRows({ ...filter, since });
  const [opened, setOpened] = useState(/** @type {AuditRecord | null} */ (null));
  const isFiltered = Boolean(period || Object.values(filter).some(Boolean));
  const clear = () => changeQuery({ account: "", action: "", outcome: "", task: "", since: "" });
  const actions = ACTIONS.includes(filter.action) || !filter.action ? ACTIONS : [filter.action, ...ACTIONS];
  const outcomes = [...new Set(["ok", "denied", ...rows.map((row) => row.outcome), ...(filter.outcome ? [filter.outcome] : [])])];

  /** @type {import("../components/table.js").Column<AuditRecord>[]} */
  const columns = [
    { key: "time", title: "Time", width: "84px", cell: (row) => html`<${Time} value=${row.time} />` },
    {
      key: "action",
      title: "Action",
      width: "minmax(130px, 190px)",
      cell: (row) => html`<a class="row-link mono" href=${location.hash} onClick=${(/** @type {Event} */ event) => {
        event.preventDefault();
        setOpened(row);
      }}>${row.action}</a>`,
    },
    { key: "outcome", title: "Outcome", width: "minmax(80px, 190px)", from: 380, cell: (row) => html`<${Badge} tone=${row.outcome === "ok" ? "ok" : row.outcome === "denied" ? "warn" : "error"}>${row.outcome}<//>` },
    { key: "actor", title: "Who", width: "minmax(100px, 2fr)", from: 640, cell: (row) => html`<span title=${row.actor?.name}>${row.actor?.name || row.actor?.kind}</span>` },
    { key: "account", title: "Account", width: "minmax(80px, 1fr)", from: 900, cell: (row) => row.actor?.account ?? "" },
    { key: "object", title: "On", width: "minmax(120px, 3fr)", from: 760, cell: (row) => html`<${Target} record=${row} />` },
    { key: "address", title: "From", width: "120px", from: 1200, cell: (row) => row.actor?.address ?? "" },
  ];
  return html`<div class="view full">
    <${PageHeader} title="Audit" after=${html`<${LiveStatus} status=${status} />`} />
    <div class="toolbar" role="search" aria-label="Audit log">
      <${Search} label="Account" value=${filter.account} onChange=${(/** @type {string} */ account) => changeQuery({ account })} />
      <${Select} label="Action" all="Any action" value=${filter.action} options=${actions} onChange=${(/** @type {string} */ action) => changeQuery({ action })} />
      <${Select} label="Outcome" all="Any outcome" value=${filter.outcome} options=${outcomes} onChange=${(/** @type {string} */ outcome) => changeQuery({ outcome })} />
      <${Select} label="Time" all="Any time" value=${period} options=${PERIODS} onChange=${(/** @type {string} */ chosen) => changeQuery({ since: chosen })} />
      ${filter.task && html`<${Badge}>task ${filter.task.slice(-10)}<//>`}
      ${isFiltered && html`<${Button} kind="quiet" icon="close" onClick=${clear}>Clear<//>`}
      <span class="grow"></span>
      <span class="muted small" role="status">${rows.length ? `${plural(rows.length, "record")}${next ? " loaded" : ""}` : ""}</span>
    </div>
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} title="The audit log could not be read" />`}
    ${rows.length > 0 && html`<${Table} label="Audit log" columns=${columns} rows=${rows} rowKey=${(/** @type {AuditRecord} */ row) => row.id} onEnd=${loadMore} footer=${loading && html`<${Loading} label="Loading more" />`} />`}
    ${!rows.length && loading && !first && html`<${Loading} label="Loading the audit log" />`}
    ${!rows.length && (first || !loading) && !error && html`<${Empty} icon="audit" title=${isFiltered ? "No record matches" : "No records yet"} />`}
    ${opened && html`<${Dialog} title=${opened.action} onClose=${() => setOpened(null)} wide><${JsonView} value=${withoutId(opened)} open=${3} /><//>`}
  </div>`;
}

/** @param {AuditRecord} record */
function withoutId({ id, ...record }) {
  return record;
}

/** @param {{record: AuditRecord}} props */
function Target({ record }) {
  const { task, ...others } = record.object ?? {};
  const text = Object.entries(others)
    .filter(([name]) => name !== "context")
    .map(([name, value]) => `${name} ${value}`)
    .join(" · ");
  return html`<span title=${JSON.stringify(record.object)}>${task && html`<a class="in-text" href=${href(["tasks", task])}>task ${task.slice(-10)}</a>${text ? " · " : ""}`}${text}</span>`;
}
