/** The published workflows. */

import { Empty, ErrorState, Loading, PageHeader } from "../components/basics.js";
import { Search } from "../components/fields.js";
import { Table } from "../components/table.js";
import { plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { useJson } from "../store/hooks.js";
import { useWorkflowChanges } from "../store/mesh.js";
import { html } from "../vendor/preact.js";

/** @typedef {{name: string, description: string, version: number, versions: number[]}} WorkflowRow */

/** @type {import("../components/table.js").Column<WorkflowRow>[]} */
const COLUMNS = [
  { key: "name", title: "Workflow", width: "minmax(120px, 1fr)", cell: (row) => html`<a class="row-link" href=${href(["workflows", row.name])}>${row.name}</a>` },
  { key: "description", title: "Description", width: "minmax(140px, 3fr)", from: 560, cell: (row) => html`<span class="muted" title=${row.description}>${row.description}</span>` },
  { key: "version", title: "Version", width: "70px", align: "end", cell: (row) => row.version },
  { key: "versions", title: "Versions", width: "80px", align: "end", cell: (row) => row.versions.length },
];

/** @param {import("../views.js").ViewProps} props */
export default function Workflows({ query }) {
  const { data, error, loading, reload } = useJson("workflows");
  useWorkflowChanges(reload);
  const text = (query.get("text") ?? "").toLowerCase();
  /** @type {WorkflowRow[]} */
  const workflows = data?.workflows ?? [];
  const rows = workflows.filter((row) => `${row.name} ${row.description}`.toLowerCase().includes(text));
  return html`<div class="view full">
    <${PageHeader} title="Workflows" />
    <div class="toolbar" role="search" aria-label="Workflows">
      <${Search} label="Search workflows" value=${query.get("text") ?? ""} onChange=${(/** @type {string} */ typed) => changeQuery({ text: typed })} />
      <span class="grow"></span>
      <span class="muted small" role="status">${rows.length ? plural(rows.length, "workflow") : ""}</span>
    </div>
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} title="The workflows could not be loaded" />`}
    ${rows.length
      ? html`<${Table} label="Workflows" columns=${COLUMNS} rows=${rows} rowKey=${(/** @type {WorkflowRow} */ row) => row.name} />`
      : loading
        ? html`<${Loading} label="Loading workflows" />`
        : !error && html`<${Empty} icon="workflows" title=${text ? "No workflow matches" : "No workflows yet"}>Workflows that the mesh runs, and that you may see, appear here.<//>`}
  </div>`;
}
