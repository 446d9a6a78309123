/** Two traces beside each other: what became slower, what is new. */

import { Button, ErrorState, Loading, PageHeader, Panel } from "../components/basics.js";
import { cost, count, duration, fullTime, plural, timeMs } from "../format.js";
import { href, navigate } from "../router.js";
import { useJson } from "../store/hooks.js";
import { buildTrace } from "../store/trace.js";
import { html, useMemo } from "../vendor/preact.js";
import { ComparisonTable } from "./trace_operations.js";

/** @typedef {import("../store/trace.js").Trace} Trace */

const SHOWN_BARS = 60;

/** @param {string} id */
function useTrace(id) {
  const { data, error, reload } = useJson(`traces/${encodeURIComponent(id)}`);
  const trace = useMemo(() => (data ? buildTrace(data) : null), [data]);
  return { trace, error, reload };
}

/** @param {import("../views.js").ViewProps} props */
export default function TraceCompare({ params }) {
  const { id = "", other = "" } = params;
  const left = useTrace(id);
  const right = useTrace(other);
  const error = left.error ?? right.error;
  const longest = Math.max(left.trace?.length ?? 0, right.trace?.length ?? 0, 0.001);
  return html`<div class="view">
    <${PageHeader} title="Two traces compared" back=${{ href: href(["traces"]), label: "Traces" }}>
      <${Button} icon="compare" onClick=${() => navigate(href(["traces", other, "with", id]))}>Swap A and B<//>
    <//>
    ${error && html`<${ErrorState} error=${error} onRetry=${left.error ? left.reload : right.reload} title="A trace could not be loaded" />`}
    ${left.trace && right.trace
      ? html`<div class="compare-split">
            <${Side} name="A" id=${id} trace=${left.trace} longest=${longest} />
            <${Side} name="B" id=${other} trace=${right.trace} longest=${longest} />
          </div>
          <h2>Time on the critical path</h2>
          <${ComparisonTable} left=${left.trace} right=${right.trace} />`
      : !error && html`<${Loading} label="Loading both traces" />`}
  </div>`;
}

/** @param {{name: string, id: string, trace: Trace, longest: number}} props */
function Side({ name, id, trace, longest }) {
  const bars = trace.order.filter((node) => node.critical.length).slice(0, SHOWN_BARS);
  const tokens = trace.tokens.input + trace.tokens.output;
  return html`<${Panel} title=${html`${name}: <a href=${href(["traces", id])}>${trace.roots[0]?.span.name ?? id}</a>`}>
    <div class="stack">
      <p class="muted small">${fullTime(timeMs(trace.startTime))}</p>
      <p>${duration(trace.length)} · ${plural(trace.order.length, "span")} · ${plural(trace.errors, "error")}${tokens > 0 && ` · ${count(tokens)} tokens`}${trace.costMicros > 0 && ` · ${cost(trace.costMicros)}`}</p>
      <div class="mini-waterfall" role="img" aria-label=${`Critical path of ${name}: ${duration(trace.length)}`}>
        ${bars.map((node) => html`<div class="mini-row" key=${node.span.spanId}>${node.critical.map(({ from, to }) => html`<span key=${from} class="bar-critical" style=${{ left: `${(100 * from) / longest}%`, width: `${(100 * (to - from)) / longest}%` }}></span>`)}</div>`)}
      </div>
    </div>
  <//>`;
}
