/** One workflow: the graph of a version, its runs, and how its versions differ. */

import { Button, Elapsed, Empty, ErrorState, Facts, LiveStatus, Loading, PageHeader, StateBadge, Time } from "../components/basics.js";
import { DetailsPanel } from "../components/details_panel.js";
import { Select } from "../components/fields.js";
import { JsonView } from "../components/json_view.js";
import { Table } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { hasEnded } from "../format.js";
import { changeQuery, href } from "../router.js";
import { useJson } from "../store/hooks.js";
import { useWorkflowChanges } from "../store/mesh.js";
import { mayCall } from "../store/session.js";
import { useRuns } from "../store/workflow_runs.js";
import { html, useState } from "../vendor/preact.js";
import { WorkflowGraph, nodeDetail } from "./workflow_graph.js";
import { StartDialog } from "./workflow_start.js";
import { Versions } from "./workflow_versions.js";

/** @typedef {import("../store/workflow_runs.js").RunRow} RunRow */

/** @param {import("../views.js").ViewProps} props */
export default function Workflow({ params, query }) {
  const name = params.name ?? "";
  const path = `workflows/${encodeURIComponent(name)}`;
  const version = query.get("version") ?? "";
  const { data, error, reload } = useJson(path, { version });
  const current = useJson(path);
  const reloadAll = () => {
    current.reload();
    reload();
  };
  useWorkflowChanges(reloadAll, name);
  const runs = useRuns(name);
  const [starting, setStarting] = useState(false);
  const back = { href: href(["workflows"]), label: "Workflows" };
  if (!data) {
    return html`<div class="view"><${PageHeader} title=${name} back=${back} />
      ${error ? html`<${ErrorState} error=${error} onRetry=${reload} title="The workflow could not be loaded" />` : html`<${Loading} label="Loading the workflow" />`}
    </div>`;
  }
  const tab = query.get("tab") ?? "graph";
  const tabs = [
    { id: "graph", label: "Graph" },
    { id: "runs", label: "Runs" },
    { id: "versions", label: "Versions", count: data.versions.length },
  ];
  const currentVersion = current.data?.version ?? data.version;
  const panels = {
    graph: () => html`<${GraphTab} data=${data} current=${currentVersion} selected=${query.get("node") ?? ""} />`,
    runs: () => html`<${RunTable} name=${name} runs=${runs} />`,
    versions: () => html`<${Versions} name=${name} current=${currentVersion} versions=${data.versions} query=${query} onRolledBack=${reloadAll} />`,
  };
  const shown = /** @type {keyof typeof panels} */ (tab in panels ? tab : "graph");
  return html`<div class="view workflow">
    <${PageHeader} title=${name} back=${back} after=${html`<span class="tag">version ${data.version}</span><${LiveStatus} status=${runs.status} />`}>
      ${mayCall("SendMessage")
        ? html`<${Button} kind="primary" icon="play" onClick=${() => setStarting(true)}>Start<//>`
        : html`<span class="muted small">Your credentials do not permit starting runs.</span>`}
    <//>
    ${data.description && html`<p class="muted">${data.description}</p>`}
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} />`}
    <${Tabs} label="Parts of the workflow" tabs=${tabs} selected=${shown} onSelect=${(/** @type {string} */ id) => changeQuery({ tab: id === "graph" ? "" : id })}>${panels[shown]()}<//>
    ${starting && html`<${StartDialog} name=${name} version=${data.version} isCurrent=${data.version === currentVersion} schema=${data.inputSchema} onClose=${() => setStarting(false)} />`}
  </div>`;
}

/** @param {{data: any, current: number, selected: string}} props */
function GraphTab({ data, current, selected }) {
  const node = data.definition.nodes.find((/** @type {any} */ each) => each.id === selected);
  const options = data.versions.map((/** @type {number} */ each) => ({ value: String(each), label: `${each}${each === current ? " (current)" : ""}` }));
  const select = (/** @type {string} */ id) => changeQuery({ node: id === selected ? "" : id });
  return html`<div class="stack">
    ${data.versions.length > 1 && html`<div class="row"><${Select} label="Version" visibleLabel value=${String(data.version)} options=${options} onChange=${(/** @type {string} */ version) => changeQuery({ version: Number(version) === current ? "" : version })} /></div>`}
    <div class="flow-split ${node ? "with-details" : ""}">
      <${WorkflowGraph} definition=${data.definition} label=${`Graph of ${data.name}, version ${data.version}. The list below says the same.`} selected=${selected} onSelect=${select} />
      ${node && html`<${DetailsPanel} title=${node.id} class="node-details" onClose=${() => select(selected)}><${JsonView} value=${node} open=${3} /><//>`}
    </div>
    <${NodeList} definition=${data.definition} />
    ${(data.definition.limits || data.definition.tags) && html`<${Facts} items=${Object.entries(data.definition.limits ?? {}).map(([key, value]) => [`Limit of ${key}`, String(value)])} />`}
  </div>`;
}

/**
 * The graph as a list: each node with the ways on from it.
 * @param {{definition: import("./workflow_graph.js").Definition}} props
 */
export function NodeList({ definition }) {
  return html`<details class="equivalent"><summary>Nodes and edges as a list</summary>
    <ul>
      ${definition.nodes.map((node) => {
        const ways = definition.edges.filter((edge) => edge.from === node.id);
        return html`<li key=${node.id}><strong>${node.id}</strong> <span class="muted">${nodeDetail(node)}</span>
          ${ways.length > 0 && html`<span>: ${ways.map((edge) => `${edge.condition ? `${edge.condition} ` : ""}to ${edge.to}`).join(", ")}</span>`}
        </li>`;
      })}
    </ul>
  </details>`;
}

/** @param {{name: string, runs: ReturnType<typeof useRuns>}} props */
function RunTable({ name, runs }) {
  /** @type {import("../components/table.js").Column<RunRow>[]} */
  const columns = [
    { key: "state", title: "State", width: "132px", cell: (row) => html`<${StateBadge} state=${row.state} />` },
    { key: "text", title: "Input", width: "minmax(100px, 3fr)", cell: (row) => html`<a class="row-link" href=${href(["workflows", name, "runs", row.id])} title=${row.text}>${row.text || html`<span class="id">${row.id}</span>`}</a>` },
    { key: "version", title: "Version", width: "60px", from: 420, align: "end", cell: (row) => row.workflowVersion || "–" },
    { key: "id", title: "Task", width: "110px", from: 760, cell: (row) => html`<span class="id" title=${row.id}>${row.id.slice(-12)}</span>` },
    { key: "took", title: "Took", width: "80px", from: 640, align: "end", cell: (row) => html`<${Elapsed} from=${row.createdAt} to=${hasEnded(row.state) ? row.updatedAt : null} />` },
    { key: "created", title: "Started", width: "80px", from: 520, align: "end", cell: (row) => html`<${Time} value=${row.createdAt} />` },
  ];
  if (runs.error) return html`<${ErrorState} error=${runs.error} onRetry=${runs.retry} title="The runs could not be loaded" />`;
  if (!runs.rows.length) return runs.loading ? html`<${Loading} label="Loading runs" />` : html`<${Empty} icon="workflows" title="No runs yet">Start one, and it appears here.<//>`;
  return html`<div class="run-table"><${Table} label="Runs" columns=${columns} rows=${runs.rows} rowKey=${(/** @type {RunRow} */ row) => row.id} onEnd=${runs.loadMore} footer=${runs.loading && html`<${Loading} label="Loading more" />`} /></div>`;
}
