/** The details of a span. */

import { Badge, Facts, Id } from "../components/basics.js";
import { DetailsPanel } from "../components/details_panel.js";
import { JsonView } from "../components/json_view.js";
import { cost, count, duration, elapsedMs, enumName, fullTime, timeMs } from "../format.js";
import { changeQuery, href } from "../router.js";
import { criticalMs, isLost, isOpen } from "../store/trace.js";
import { html } from "../vendor/preact.js";

/**
 * @param {{node: import("../store/trace.js").SpanNode, trace: import("../store/trace.js").Trace, taskId: string}} props
 */
export function SpanDetails({ node, trace, taskId }) {
  const { span } = node;
  const length = node.end - node.start;
  const attributes = Object.entries(span.attributes ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return html`<${DetailsPanel} title=${html`<span class="truncate">${span.name}</span>`} class="span-details" onClose=${() => changeQuery({ span: "" })}>
    <div class="stack">
      ${span.isError && html`<div class="notice error">${span.statusMessage || "The operation failed."}</div>`}
      <${Facts}
        items=${[
          ["Duration", isOpen(span) ? html`<span class="muted">open</span>` : duration(length)],
          ["Own time", duration(span.selfMs)],
          ["On the critical path", span.isCritical ? duration(criticalMs(node)) : "not on it"],
          ["Starts after", duration(node.start)],
          ["Service", span.service],
          ["Kind", enumName(span.kind, "SPAN_KIND_")],
          span.inputTokens + span.outputTokens > 0 && ["Tokens in, out", `${count(span.inputTokens)}, ${count(span.outputTokens)}`],
          span.costMicros > 0 && ["Cost", cost(span.costMicros)],
          taskId && ["Task", html`<${Id} value=${taskId} link=${href(["tasks", taskId])} />`],
          ["Span", html`<${Id} value=${span.spanId} />`],
          node.parent && ["Parent", html`<button type="button" class="link truncate" onClick=${() => changeQuery({ span: node.parent?.span.spanId })}>${node.parent.span.name}</button>`],
          isLost(span) && ["State", html`<${Badge} tone="warn">lost with its process<//>`],
          span.isOrphan && ["Parent", html`<${Badge} tone="warn">not received<//>`],
        ]}
      />
      ${attributes.length > 0 && html`<section><h3>Attributes</h3>
        <dl class="attributes">${attributes.map(([key, value]) => html`<div key=${key}><dt class="mono">${key}</dt><dd>${typeof value === "object" ? html`<${JsonView} value=${value} open=${1} />` : html`<span class="mono">${String(value)}</span>`}</dd></div>`)}</dl>
      </section>`}
      ${(span.events ?? []).length > 0 && html`<section><h3>Events</h3>
        <ul class="stack">${span.events?.map((event, index) => html`<li key=${index}>
          <div class="row"><strong class="grow">${event.name}</strong><span class="muted small" title=${fullTime(timeMs(event.time))}>after ${duration(elapsedMs(trace.startTime, event.time))}</span></div>
          ${event.attributes && html`<${JsonView} value=${event.attributes} open=${1} />`}
        </li>`)}</ul>
      </section>`}
      ${(span.links ?? []).length > 0 && html`<section><h3>Links</h3>
        <ul>${span.links?.map((link) => html`<li key=${link.spanId}><a class="id" href=${href(["traces", link.traceId], { span: link.spanId })}>${link.traceId.slice(0, 12)}… span ${link.spanId.slice(0, 8)}…</a></li>`)}</ul>
      </section>`}
    </div>
  <//>`;
}
