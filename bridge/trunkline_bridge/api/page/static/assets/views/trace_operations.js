/** The operations of a trace, and those of two traces beside each other. */

import { Table } from "../components/table.js";
import { cost, count, duration } from "../format.js";
import { href, route } from "../router.js";
import { compareTraces, listOperations } from "../store/trace.js";
import { html, useMemo } from "../vendor/preact.js";

/**
 * @typedef {import("../store/trace.js").Operation} Operation
 * @typedef {import("../store/trace.js").ComparedOperation} ComparedOperation
 * @typedef {import("../store/trace.js").Trace} Trace
 */

/** @param {string} name */
function spansNamed(name) {
  return href(route.value.segments, { text: name });
}

/** @type {import("../components/table.js").Column<Operation>[]} */
const COLUMNS = [
  { key: "name", title: "Operation", width: "minmax(140px, 2fr)", cell: (row) => html`<a class="row-link" href=${spansNamed(row.name)} title=${row.name}>${row.name}</a>` },
  { key: "service", title: "Service", width: "minmax(80px, 1fr)", from: 700, cell: (row) => html`<span class="muted">${row.service}</span>` },
  { key: "count", title: "Spans", width: "60px", from: 420, align: "end", cell: (row) => count(row.count) },
  { key: "errors", title: "Errors", width: "60px", from: 520, align: "end", cell: (row) => (row.errors ? html`<span class="error-text">${count(row.errors)}</span>` : html`<span class="muted">–</span>`) },
  { key: "tokens", title: "Tokens", width: "80px", from: 900, align: "end", cell: (row) => (row.tokens ? count(row.tokens) : html`<span class="muted">–</span>`) },
  { key: "cost", title: "Cost", width: "80px", from: 900, align: "end", cell: (row) => (row.costMicros ? cost(row.costMicros) : html`<span class="muted">–</span>`) },
  { key: "total", title: "Total", width: "80px", from: 620, align: "end", cell: (row) => duration(row.totalMs) },
  { key: "critical", title: "Critical path", width: "90px", align: "end", cell: (row) => (row.criticalMs ? duration(row.criticalMs) : html`<span class="muted">–</span>`) },
];

/** @param {{trace: Trace}} props */
export function OperationTable({ trace }) {
  const rows = useMemo(() => listOperations(trace), [trace]);
  return html`<${Table} label="Operations" columns=${COLUMNS} rows=${rows} rowKey=${(/** @type {Operation} */ row) => row.key} />`;
}

/** @param {number} ms */
function difference(ms) {
  if (Math.abs(ms) < 0.0005) return html`<span class="muted">same</span>`;
  return html`<span class=${ms > 0 ? "error-text" : "ok-text"}>${ms > 0 ? "+" : "−"}${duration(Math.abs(ms))}</span>`;
}

/** @param {Operation | null} operation */
const onPath = (operation) => (operation ? duration(operation.criticalMs) : html`<span class="muted">–</span>`);

/** @type {import("../components/table.js").Column<ComparedOperation>[]} */
const COMPARED = [
  { key: "name", title: "Operation", width: "minmax(130px, 2fr)", cell: (row) => html`<span title=${row.name}>${row.name}</span>` },
  { key: "service", title: "Service", width: "minmax(80px, 1fr)", from: 900, cell: (row) => html`<span class="muted">${row.service}</span>` },
  { key: "counts", title: "Spans A, B", width: "90px", from: 620, align: "end", cell: (row) => `${row.left?.count ?? 0}, ${row.right?.count ?? 0}` },
  { key: "errors", title: "Errors A, B", width: "90px", from: 760, align: "end", cell: (row) => html`<span class=${row.left?.errors || row.right?.errors ? "error-text" : "muted"}>${row.left?.errors ?? 0}, ${row.right?.errors ?? 0}</span>` },
  { key: "left", title: "A", width: "80px", from: 480, align: "end", cell: (row) => onPath(row.left) },
  { key: "right", title: "B", width: "80px", from: 480, align: "end", cell: (row) => onPath(row.right) },
  { key: "difference", title: "B − A", width: "90px", align: "end", cell: (row) => difference((row.right?.criticalMs ?? 0) - (row.left?.criticalMs ?? 0)) },
];

/** @param {{left: Trace, right: Trace}} props */
export function ComparisonTable({ left, right }) {
  const rows = useMemo(() => compareTraces(left, right), [left, right]);
  return html`<${Table} label="Operations of both, by their time on the critical path" columns=${COMPARED} rows=${rows} rowKey=${(/** @type {ComparedOperation} */ row) => row.key} />`;
}
