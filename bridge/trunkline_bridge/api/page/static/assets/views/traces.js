/** The list of traces, live; two of them can be compared. */

import { Badge, Button, Empty, ErrorState, LiveStatus, Loading, PageHeader, Time } from "../components/basics.js";
import { Search } from "../components/fields.js";
import { Table } from "../components/table.js";
import { count, duration, elapsedMs, plural } from "../format.js";
import { changeQuery, href, navigate } from "../router.js";
import { useTraceRows } from "../store/trace_rows.js";
import { html, useMemo, useState } from "../vendor/preact.js";

/** @typedef {import("../store/trace_rows.js").TraceRow} TraceRow */

// The page's own requests are traced as any other; few people look for them.
const PAGE_PREFIX = "page.";

/** @param {TraceRow} row */
const lengthMs = (row) => elapsedMs(row.startTime, row.endTime);

/** @param {import("../views.js").ViewProps} props */
export default function Traces({ query }) {
  const text = query.get("text") ?? "";
  const onlyErrors = query.get("errors") === "1";
  const withPage = query.get("page") === "1";
  const { rows, next, first, loading, error, status, loadMore, retry } = useTraceRows();
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const shown = useMemo(() => {
    const words = text.toLowerCase();
    return rows.filter((row) => {
      if (onlyErrors && !row.errorCount) return false;
      if (!withPage && row.rootName?.startsWith(PAGE_PREFIX)) return false;
      return !words || `${row.rootName ?? ""} ${row.rootService ?? ""} ${row.rootAgent ?? ""} ${row.traceId} ${(row.taskIds ?? []).join(" ")}`.toLowerCase().includes(words);
    });
  }, [rows, text, onlyErrors, withPage]);
  const longest = useMemo(() => shown.reduce((most, row) => Math.max(most, lengthMs(row)), 1), [shown]);
  /** @param {string} id */
  const toggle = (id) => setChosen((now) => (now.includes(id) ? now.filter((each) => each !== id) : [...now, id].slice(-2)));
  const columns = useMemo(() => makeColumns(longest, chosen, toggle), [longest, chosen]);

  return html`<div class="view full">
    <${PageHeader} title="Traces" after=${html`<${LiveStatus} status=${status} />`} />
    <div class="toolbar" role="search" aria-label="Traces">
      <${Search} label="Search name, trace or task" value=${text} onChange=${(/** @type {string} */ next) => changeQuery({ text: next })} />
      <${Button} pressed=${onlyErrors} onClick=${() => changeQuery({ errors: onlyErrors ? "" : 1 })}>With errors<//>
      <${Button} pressed=${withPage} title="Also show the traces of this page's own requests" onClick=${() => changeQuery({ page: withPage ? "" : 1 })}>This page's<//>
      <span class="grow"></span>
      <${Button} icon="compare" disabled=${chosen.length !== 2} title="Choose two traces" onClick=${() => navigate(href(["traces", chosen[0] ?? "", "with", chosen[1] ?? ""]))}>
        ${chosen.length === 2 ? "Compare" : `Compare (${chosen.length} of 2)`}
      <//>
    </div>
    ${error && html`<${ErrorState} error=${error} onRetry=${retry} title="The traces could not be loaded" />`}
    ${shown.length
      ? html`<${Table} label="Traces" columns=${columns} rows=${shown} rowKey=${(/** @type {TraceRow} */ row) => row.traceId} onEnd=${loadMore} footer=${loading && html`<${Loading} label="Loading more" />`} />`
      : loading && !first
        ? html`<${Loading} label="Loading traces" />`
        : !error && html`<${Empty} icon="traces" title=${rows.length ? "No trace matches" : "No traces yet"}>
            ${next ? html`<button type="button" class="link" onClick=${loadMore}>Look further back</button>` : "Every request to the mesh leaves one trace."}
          <//>`}
  </div>`;
}

/**
 * @param {number} longest
 * @param {string[]} chosen
 * @param {(id: string) => void} toggle
 * @returns {import("../components/table.js").Column<TraceRow>[]}
 */
function makeColumns(longest, chosen, toggle) {
  return [
    {
      key: "choose",
      title: html`<span class="visually-hidden">Compare</span>`,
      width: "18px",
      from: 480,
      cell: (row) => html`<input type="checkbox" aria-label=${`Compare ${row.rootName || row.traceId}`} checked=${chosen.includes(row.traceId)} onChange=${() => toggle(row.traceId)} />`,
    },
    { key: "name", title: "Root", width: "minmax(120px, 2fr)", cell: (row) => html`<a class="row-link" href=${href(["traces", row.traceId])}>${row.rootName || "Root without a name"}</a>` },
    { key: "service", title: "Service", width: "minmax(80px, 140px)", from: 900, cell: (row) => html`<span class="muted">${row.rootService || "–"}</span>` },
    { key: "agent", title: "Agent", width: "minmax(80px, 140px)", from: 620, cell: (row) => html`<span class="muted">${row.rootAgent || "–"}</span>` },
    {
      key: "length",
      title: "Duration",
      width: "minmax(80px, 1.4fr)",
      cell: (row) => html`<div class="bar-cell"><span class="number">${duration(lengthMs(row))}</span>
        <span class="bar-track"><span class="bar-fill" style=${{ width: `${Math.max(1, (100 * lengthMs(row)) / longest)}%` }}></span></span></div>`,
    },
    { key: "spans", title: "Spans", width: "60px", from: 620, align: "end", cell: (row) => count(row.spanCount ?? 0) },
    { key: "errors", title: "Errors", width: "90px", from: 420, cell: (row) => (row.errorCount ? html`<${Badge} tone="error">${plural(row.errorCount, "error")}<//>` : html`<span class="muted">–</span>`) },
    { key: "tasks", title: "Tasks", width: "60px", from: 760, align: "end", cell: (row) => count(row.taskIds?.length ?? 0) },
    { key: "id", title: "Trace", width: "110px", from: 1100, cell: (row) => html`<span class="id" title=${row.traceId}>${row.traceId.slice(0, 12)}</span>` },
    { key: "start", title: "Started", width: "80px", align: "end", from: 520, cell: (row) => html`<${Time} value=${row.startTime} />` },
  ];
}
