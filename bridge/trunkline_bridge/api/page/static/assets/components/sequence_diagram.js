/** A sequence diagram as SVG: participants as columns, messages as arrows, time downwards. */

import { html } from "../vendor/preact.js";

/**
 * @typedef {object} SequenceArrow
 * @property {string} to
 * @property {string} state The outcome of its deliveries; styles know `ok`, `error`, `info`, `warn` and `neutral` by `tone`.
 * @property {import("../format.js").Tone} tone
 *
 * @typedef {object} SequenceMessage
 * @property {string} id
 * @property {string} from
 * @property {string} time
 * @property {string} label
 * @property {boolean} isReply Drawn with a dashed line.
 * @property {SequenceArrow[]} arrows One for each receiver.
 */

const TIME_WIDTH = 74;
const LEAST_COLUMN = 130;
const MOST_COLUMN = 260;
const MOST_NARROW_COLUMN = 140;
const NARROW = "(max-width: 640px)";
const HEAD = 44;
const ROW = 46;
const MARK = 6;
const CHARACTER_WIDTH = 6.6;

/** @param {string} text @param {number} width */
function cut(text, width) {
  const most = Math.max(4, Math.floor(width / CHARACTER_WIDTH));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/**
 * @param {{participants: string[], messages: SequenceMessage[], label: string, selected: string, onSelect: (id: string) => void}} props
 */
export function SequenceDiagram({ participants, messages, label, selected, onSelect }) {
  const longest = Math.max(0, ...messages.map((message) => message.label.length), ...participants.map((name) => name.length));
  const column = Math.min(matchMedia(NARROW).matches ? MOST_NARROW_COLUMN : MOST_COLUMN, Math.max(LEAST_COLUMN, longest * CHARACTER_WIDTH + 40));
  const width = TIME_WIDTH + participants.length * column;
  const height = HEAD + messages.length * ROW + 16;
  const x = new Map(participants.map((name, index) => [name, TIME_WIDTH + (index + 0.5) * column]));
  return html`<div class="sequence" role="group" aria-label=${label} tabindex="0">
    <svg width=${width} height=${height}>
      ${participants.map((name) => {
        const at = x.get(name) ?? 0;
        return html`<g key=${name} class="participant">
          <line x1=${at} x2=${at} y1=${HEAD - 8} y2=${height} />
          <rect x=${at - column / 2 + 8} y="6" width=${column - 16} height="30" rx="6" />
          <text x=${at} y="25" text-anchor="middle">${cut(name, column - 30)}<title>${name}</title></text>
        </g>`;
      })}
      ${messages.map((message, index) => html`<${Message} key=${message.id} message=${message} y=${HEAD + index * ROW} x=${x} width=${width} isSelected=${message.id === selected} onSelect=${onSelect} />`)}
    </svg>
  </div>`;
}

/**
 * @param {{message: SequenceMessage, y: number, x: Map<string, number>, width: number, isSelected: boolean, onSelect: (id: string) => void}} props
 */
function Message({ message, y, x, width, isSelected, onSelect }) {
  const from = x.get(message.from) ?? 0;
  const line = y + 30;
  const ends = message.arrows.map((arrow) => x.get(arrow.to) ?? from);
  const left = Math.min(from, ...ends);
  const right = Math.max(from, ...ends);
  const isLoop = ends.length === 1 && ends[0] === from;
  const shown = cut(message.label, isLoop ? 110 : right - left - 12);
  // The name begins with the visible text, as people who speak to their computer expect.
  const states = message.arrows.map((arrow) => `${arrow.to} ${arrow.state}`).join(", ");
  return html`<g
    class="sequence-message ${message.isReply ? "reply" : ""} ${isSelected ? "selected" : ""}"
    role="button"
    tabindex="0"
    aria-pressed=${String(isSelected)}
    aria-label=${`${message.time} ${shown}${shown === message.label ? "" : `: ${message.label}`} from ${message.from} to ${states}`}
    onClick=${() => onSelect(message.id)}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      onSelect(message.id);
    }}
  >
    <rect class="hit" x="2" y=${y + 2} width=${width - 4} height=${ROW - 4} rx="6" />
    <text class="sequence-time" x="8" y=${line + 4}>${message.time}</text>${" "}
    <circle class="source" cx=${from} cy=${line} r="3" />
    ${isLoop
      ? html`<path class="line" d=${`M${from},${line - 4} h34 v8 h-${34 - MARK}`} />`
      : message.arrows.map((arrow, index) => {
          const to = ends[index] ?? from;
          const side = to > from ? 1 : -1;
          return html`<path key=${arrow.to} class="line" d=${`M${from},${line} H${to - side * (MARK + 2)}`} />`;
        })}
    ${message.arrows.map((arrow, index) => html`<${End} key=${arrow.to} arrow=${arrow} x=${ends[index] ?? from} y=${isLoop ? line + 4 : line} side=${isLoop || (ends[index] ?? 0) < from ? -1 : 1} />`)}
    <text class="sequence-label" x=${isLoop ? from + 42 : (left + right) / 2} y=${isLoop ? line + 4 : line - 8} text-anchor=${isLoop ? "start" : "middle"}>${shown}</text>
  </g>`;
}

/**
 * The end of an arrow: its head, and a mark of what became of it.
 * @param {{arrow: SequenceArrow, x: number, y: number, side: number}} props
 */
function End({ arrow, x, y, side }) {
  /** @type {Record<string, string>} */
  const glyphs = { ok: "M-3,0 L-1,2.2 L3,-2.2", error: "M-2.4,-2.4 L2.4,2.4 M2.4,-2.4 L-2.4,2.4", warn: "M0,-3 V0.8 M0,2.6 V3", info: "M-1.8,-2.6 L2.6,0 L-1.8,2.6 Z" };
  return html`<g class="sequence-end ${arrow.tone}" transform=${`translate(${x} ${y})`}>
    <path class="head" d=${side > 0 ? `M-${MARK},0 l-8,-4 v8 Z` : `M${MARK},0 l8,-4 v8 Z`} />
    <circle r=${MARK} /><path class="glyph" d=${glyphs[arrow.tone] ?? ""} />
  </g>`;
}
