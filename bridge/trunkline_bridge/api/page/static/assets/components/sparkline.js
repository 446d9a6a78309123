/** A small line of recent values. */

import { html } from "../vendor/preact.js";

const HEIGHT = 28;

/**
 * @param {{values: number[], label: string, width?: number}} props
 */
export function Sparkline({ values, label, width = 160 }) {
  const most = Math.max(...values, 1e-9);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`);
  return html`<svg class="sparkline" viewBox=${`0 0 ${width} ${HEIGHT}`} width=${width} height=${HEIGHT} role="img" aria-label=${label}>
    <polyline points=${points.join(" ")} />
  </svg>`;
}
