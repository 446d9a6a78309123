/** The versions of a workflow: what changed between two of them, and which one new runs take. */

import { postJson } from "../api.js";
import { Badge, Button, Empty, ErrorState, Loading, Panel } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { Select } from "../components/fields.js";
import { toast } from "../components/toasts.js";
import { changeQuery } from "../router.js";
import { asApiError, useJson } from "../store/hooks.js";
import { mayCall, session } from "../store/session.js";
import { html, useMemo, useState } from "../vendor/preact.js";
import { WorkflowGraph, edgeId } from "./workflow_graph.js";

/** @typedef {import("./workflow_graph.js").Change} Change */

/** @param {{name: string, current: number, versions: number[], query: URLSearchParams, onRolledBack: () => void}} props */
export function Versions({ name, current, versions, query, onRolledBack }) {
  const to = Number(query.get("to")) || current;
  const before = versions.filter((version) => version < to);
  const from = Number(query.get("from")) || before[0] || versions.find((version) => version !== to) || to;
  const options = versions.map((version) => ({ value: String(version), label: `${version}${version === current ? " (current)" : ""}` }));
  const path = `workflows/${encodeURIComponent(name)}`;
  const [choosing, setChoosing] = useState(0);
  const isComparable = versions.length > 1;
  const difference = useJson(isComparable ? `${path}:diff` : null, { from, to });
  const newer = useJson(isComparable ? path : null, { version: to });
  const older = useJson(isComparable ? path : null, { version: from });
  const drawn = useMemo(() => drawChanges(difference.data, older.data?.definition, newer.data?.definition), [difference.data, older.data, newer.data]);

  return html`<div class="stack">
    <${Panel} title="Versions" flush>
      <ul class="version-list">
        ${versions.map(
          (version) => html`<li class="row" key=${version}>
            <span class="grow">Version ${version}</span>
            ${version === current ? html`<${Badge} tone="ok">current<//>` : mayRollBack() && html`<${Button} onClick=${() => setChoosing(version)}>Make current<//>`}
          </li>`,
        )}
      </ul>
      ${!mayRollBack() && versions.length > 1 && html`<p class="muted small version-note">Operators choose the current version, since the runs of all accounts take it.</p>`}
    <//>
    ${isComparable
      ? html`<${Panel}
          title="Difference"
          actions=${html`
            <${Select} label="From" visibleLabel value=${String(from)} options=${options} onChange=${(/** @type {string} */ version) => changeQuery({ from: version })} />
            <${Select} label="to" visibleLabel value=${String(to)} options=${options} onChange=${(/** @type {string} */ version) => changeQuery({ to: version })} />
          `}
        >
          ${difference.error
            ? html`<${ErrorState} error=${difference.error} onRetry=${difference.reload} />`
            : difference.data && drawn
              ? html`<div class="stack">
                  <p class="row wrap small"><span class="change-key added">+ added</span><span class="change-key removed">− removed</span><span class="change-key changed">~ changed</span></p>
                  <${WorkflowGraph} definition=${drawn.definition} changes=${drawn.changes} label=${`Graph of the difference of versions ${from} and ${to}. The text below says the same.`} />
                  <${DifferenceText} text=${difference.data.text} />
                </div>`
              : html`<${Loading} label="Comparing" />`}
        <//>`
      : html`<${Empty} icon="compare" title="There is one version">A second one can be compared with it here.<//>`}
    ${choosing > 0 && html`<${RollBackDialog} name=${name} version=${choosing} onClose=${() => setChoosing(0)} onDone=${onRolledBack} />`}
  </div>`;
}

function mayRollBack() {
  return Boolean(session.value?.isOperator) && mayCall("RollBackWorkflow");
}

/** @param {{text: string}} props */
function DifferenceText({ text }) {
  if (!text) return html`<p class="muted">These versions do not differ.</p>`;
  /** @type {Record<string, string>} */
  const kinds = { "+": "added", "-": "removed", "~": "changed" };
  return html`<pre class="difference" tabindex="0" aria-label="Difference as text">${text.split("\n").map((line, index) => html`<span key=${index} class=${kinds[line.trim()[0] ?? ""] ?? ""}>${line}${"\n"}</span>`)}</pre>`;
}

/**
 * Returns the graph of both versions, with what changed.
 * @param {any} difference
 * @param {import("./workflow_graph.js").Definition | undefined} older
 * @param {import("./workflow_graph.js").Definition | undefined} newer
 */
function drawChanges(difference, older, newer) {
  if (!difference || !older || !newer) return null;
  /** @type {Map<string, Change>} */
  const changes = new Map();
  for (const node of difference.nodes.added) changes.set(node.id, "added");
  for (const node of difference.nodes.removed) changes.set(node.id, "removed");
  for (const { id } of difference.nodes.changed) changes.set(id, "changed");
  for (const edge of difference.edges.added) changes.set(edgeId(edge), "added");
  for (const edge of difference.edges.removed) changes.set(edgeId(edge), "removed");
  for (const { after } of difference.edges.changed) changes.set(edgeId(after), "changed");
  const known = new Set(newer.nodes.map((node) => node.id));
  const ways = new Set(newer.edges.map(edgeId));
  const nodes = [...newer.nodes, ...older.nodes.filter((node) => !known.has(node.id))];
  const edges = [...newer.edges, ...older.edges.filter((edge) => !ways.has(edgeId(edge)))];
  return { definition: { nodes, edges }, changes };
}

/** @param {{name: string, version: number, onClose: () => void, onDone: () => void}} props */
function RollBackDialog({ name, version, onClose, onDone }) {
  const [busy, setBusy] = useState(false);
  const choose = async () => {
    setBusy(true);
    try {
      await postJson(`workflows/${encodeURIComponent(name)}:rollBack`, { version });
      toast(`New runs take version ${version}.`, "ok");
      onDone();
      onClose();
    } catch (error) {
      toast(asApiError(error).message, "error");
      setBusy(false);
    }
  };
  return html`<${Dialog}
    title=${`Make version ${version} current?`}
    onClose=${onClose}
    actions=${html`<${Button} onClick=${onClose}>Keep it as it is<//><${Button} kind="primary" busy=${busy} onClick=${choose}>Make current<//>`}
  >
    New runs of all accounts take version ${version} of ${name}. Runs that have begun keep theirs.
  <//>`;
}
