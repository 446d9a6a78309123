/** The waterfall of a trace. Only the rows in sight are rendered. */

import { Button, Empty } from "../components/basics.js";
import { Icon } from "../components/icons.js";
import { Table } from "../components/table.js";
import { cost, duration, plural } from "../format.js";
import { changeQuery, href, route } from "../router.js";
import { criticalMs, isLost, isOpen as hasNoEnd, taskOf } from "../store/trace.js";
import { html, useMemo, useState } from "../vendor/preact.js";

/**
 * @typedef {import("../store/trace.js").SpanNode} SpanNode
 * @typedef {import("../store/trace.js").Trace} Trace
 */

const MOST_DEPTH = 16;
const TICKS = 5;
const BIG_TRACE = 400;
const COLORS = 8;

/** @param {SpanNode} node */
function spanIcon(node) {
  const attributes = node.span.attributes ?? {};
  const operation = attributes["gen_ai.operation.name"];
  if (operation === "execute_tool" || attributes["mcp.method.name"]) return "tool";
  if (operation === "chat") return "chat";
  if (operation === "invoke_agent") return "agent";
  if (operation === "invoke_workflow" || attributes["trunkline.workflow.name"]) return "workflows";
  if (attributes["messaging.system"]) return "messages";
  return node.span.kind === "SPAN_KIND_CLIENT" || node.span.kind === "SPAN_KIND_SERVER" ? "wire" : "flow";
}

/**
 * The status of a call that its caller ended or got wrong, which is no error of the span.
 * @param {SpanNode} node
 */
function callerCode(node) {
  const attributes = node.span.attributes ?? {};
  const code = String(attributes["rpc.status_code"] ?? "OK");
  if (code !== "OK") return code;
  const status = Number(attributes["http.response.status_code"] ?? 0);
  return status >= 400 ? String(status) : "";
}

/**
 * @param {{trace: Trace, text: string, onlyErrors: boolean, onlyCritical: boolean, selected: string}} props
 */
export function Waterfall({ trace, text, onlyErrors, onlyCritical, selected }) {
  const [closed, setClosed] = useState(() => initiallyClosed(trace));
  const isFiltered = Boolean(text || onlyErrors || onlyCritical);
  const rows = useMemo(() => visibleRows(trace, closed, { text, onlyErrors, onlyCritical }), [trace, closed, text, onlyErrors, onlyCritical]);
  const colors = useMemo(() => new Map(trace.services.map((service, index) => [service, index % COLORS])), [trace]);
  /** @param {string} id */
  const toggle = (id) =>
    setClosed((now) => {
      const next = new Set(now);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  const columns = useMemo(() => makeColumns(trace, colors, closed, toggle, isFiltered), [trace, colors, closed, isFiltered]);
  const parents = trace.order.filter((node) => node.children.length);
  return html`<div class="waterfall">
    ${rows.length
      ? html`<${Table}
          label="Spans"
          columns=${columns}
          rows=${rows}
          rowHeight=${30}
          rowKey=${(/** @type {SpanNode} */ node) => node.span.spanId}
          selected=${selected}
          rowClass=${(/** @type {SpanNode} */ node) => (node.span.isError ? "failed" : "")}
          footer=${!isFiltered && parents.length > 1 &&
          html`<${Button} kind="quiet" onClick=${() => setClosed(new Set())}>Open all<//><${Button} kind="quiet" onClick=${() => setClosed(new Set(parents.filter((node) => node.span.depth > 0).map((node) => node.span.spanId)))}>Close all<//>`}
        />`
      : html`<${Empty} title="No span matches"><button type="button" class="link" onClick=${() => changeQuery({ text: "", errors: "", critical: "" })}>Show all</button><//>`}
  </div>`;
}

/**
 * Closes deep parts of a big trace, except those with errors.
 * @param {Trace} trace
 * @returns {Set<string>}
 */
function initiallyClosed(trace) {
  if (trace.order.length <= BIG_TRACE) return new Set();
  const withError = new Set();
  for (const node of trace.order) {
    for (let each = node.span.isError ? node.parent : null; each && !withError.has(each); each = each.parent) withError.add(each);
  }
  return new Set(trace.order.filter((node) => node.span.depth >= 3 && node.children.length && !withError.has(node)).map((node) => node.span.spanId));
}

/**
 * Returns the rows to show. A filter shows the spans that match, with all spans above them.
 * @param {Trace} trace
 * @param {Set<string>} closed
 * @param {{text: string, onlyErrors: boolean, onlyCritical: boolean}} filter
 */
function visibleRows(trace, closed, { text, onlyErrors, onlyCritical }) {
  if (text || onlyErrors || onlyCritical) {
    const words = text.toLowerCase();
    /** @type {Set<SpanNode>} */
    const shown = new Set();
    for (const node of trace.order) {
      if (onlyErrors && !node.span.isError) continue;
      if (onlyCritical && !node.span.isCritical) continue;
      if (words && !`${node.span.name} ${node.span.service ?? ""} ${taskOf(node.span)}`.toLowerCase().includes(words)) continue;
      for (let each = /** @type {SpanNode | null} */ (node); each && !shown.has(each); each = each.parent) shown.add(each);
    }
    return trace.order.filter((node) => shown.has(node));
  }
  /** @type {Set<SpanNode>} */
  const hidden = new Set();
  return trace.order.filter((node) => {
    const { parent } = node;
    const isHidden = parent !== null && (hidden.has(parent) || closed.has(parent.span.spanId));
    if (isHidden) hidden.add(node);
    return !isHidden;
  });
}

/** @type {import("../components/table.js").Column<SpanNode>} */
const COST = { key: "cost", title: "Cost", width: "70px", from: 1200, align: "end", cell: (node) => node.span.costMicros > 0 && html`<span class="small muted">${cost(node.span.costMicros)}</span>` };

/** @param {string} spanId */
function linkTo(spanId) {
  const { segments, query } = route.value;
  return href(segments, { ...Object.fromEntries(query), span: spanId });
}

/**
 * @param {Trace} trace
 * @param {Map<string, number>} colors
 * @param {Set<string>} closed
 * @param {(id: string) => void} toggle
 * @param {boolean} isFiltered
 * @returns {import("../components/table.js").Column<SpanNode>[]}
 */
function makeColumns(trace, colors, closed, toggle, isFiltered) {
  const length = Math.max(trace.length, 0.001);
  return [
    {
      key: "name",
      title: "Span",
      width: "minmax(170px, 2fr)",
      cell: (node) => {
        const isOpen = isFiltered || !closed.has(node.span.spanId);
        return html`<div class="span-name" style=${{ "--depth": String(Math.min(node.span.depth, MOST_DEPTH)) }}>
          ${node.children.length
            ? html`<button type="button" class="tree-toggle small" aria-expanded=${String(isOpen)} aria-label=${`${plural(node.below, "span")} below ${node.span.name}`} disabled=${isFiltered} onClick=${() => toggle(node.span.spanId)}><${Icon} name="chevron" size=${10} /></button>`
            : html`<span class="tree-gap"></span>`}
          <span class="span-icon color-${colors.get(node.span.service ?? "") ?? 0}"><${Icon} name=${spanIcon(node)} size=${13} /></span>
          <a class="row-link truncate" href=${linkTo(node.span.spanId)} title=${node.span.name}>${node.span.name}</a>
          ${node.span.isError ? html`<span class="error-text small">error</span>` : callerCode(node) && html`<span class="muted small">${callerCode(node)}</span>`}
          ${isLost(node.span) ? html`<span class="warn-text small">lost</span>` : hasNoEnd(node.span) && html`<span class="muted small">open</span>`}
          ${!isOpen && html`<span class="count">${node.below}</span>`}
        </div>`;
      },
    },
    { key: "service", title: "Service", width: "minmax(60px, 110px)", from: 1000, cell: (node) => html`<span class="muted small">${node.span.service}</span>` },
    {
      key: "bar",
      title: html`<span class="ticks" aria-label="Time">${Array.from({ length: TICKS }, (_, index) => html`<span key=${index}>${duration((length * index) / (TICKS - 1))}</span>`)}</span>`,
      width: "minmax(100px, 3fr)",
      cell: (node) => html`<${Bar} node=${node} length=${length} color=${colors.get(node.span.service ?? "") ?? 0} />`,
    },
    { key: "length", title: "Duration", width: "70px", from: 560, align: "end", cell: (node) => html`<span class="small">${hasNoEnd(node.span) ? "–" : duration(node.end - node.start)}</span>` },
    {
      key: "tokens",
      title: "Tokens",
      width: "70px",
      from: 1200,
      align: "end",
      cell: (node) => {
        const { inputTokens, outputTokens } = node.span;
        return inputTokens + outputTokens > 0 && html`<span class="small muted" title=${`${inputTokens} in, ${outputTokens} out`}>${inputTokens + outputTokens}</span>`;
      },
    },
    ...(trace.costMicros ? [COST] : []),
  ];
}

/** @param {{node: SpanNode, length: number, color: number}} props */
function Bar({ node, length, color }) {
  /** @param {number} ms */
  const percent = (ms) => `${(100 * ms) / length}%`;
  const onPath = criticalMs(node);
  const title = `${duration(node.end - node.start)}, starts after ${duration(node.start)}${onPath ? `, ${duration(onPath)} on the critical path` : ""}`;
  return html`<div class="bar" role="img" aria-label=${title} title=${title}>
    <span class="bar-span color-${color} ${node.span.isError ? "failed" : ""}" style=${{ left: percent(node.start), width: percent(node.end - node.start) }}></span>
    ${node.critical.map(({ from, to }) => html`<span key=${from} class="bar-critical" style=${{ left: percent(from), width: percent(to - from) }}></span>`)}
  </div>`;
}
