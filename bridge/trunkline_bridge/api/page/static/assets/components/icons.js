/** Line icons of 16 by 16, drawn in the colour of the text. */

import { html } from "../vendor/preact.js";

/** @type {Record<string, string>} */
const PATHS = {
  mesh: "M8 3.5v9M3.5 8h9M8 2a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3ZM8 11a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3ZM3.5 6.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3ZM12.5 6.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3Z",
  chat: "M2.5 3.5h11v7.5h-6L4.5 13.5V11h-2z",
  tasks: "M6.5 4h7M6.5 8h7M6.5 12h7M2.5 4l.8.8L4.8 3.2M2.5 8l.8.8L4.8 7.2M2.5 12l.8.8 1.5-1.6",
  traces: "M2.5 3.5h6M5 6.5h8M5 9.5h4M8 12.5h5.5",
  workflows: "M2.5 2.5h4v4h-4zM9.5 9.5h4v4h-4zM4.5 6.5v5h5M11.5 9.5v-5h-5",
  messages: "M2.5 4h11v8h-11zM2.5 4.5 8 9l5.5-4.5",
  wire: "M2.5 5.5h9M9 3l2.5 2.5L9 8M13.5 10.5h-9M7 8l-2.5 2.5L7 13",
  approvals: "M8 2 3 4v4c0 3 2.2 5 5 6 2.8-1 5-3 5-6V4zM5.8 8l1.6 1.6 2.9-3",
  webhooks: "M6 5.5a2 2 0 1 1 3.4 1.4L11 9.7M5 9.3l1.8-3M10.5 11h-5M4 9.5A1.8 1.8 0 1 0 5.5 12M12 9.5a1.8 1.8 0 1 1-1.5 2.5",
  audit: "M4 2.5h6l2.5 2.5v8.5H4zM6.3 7h3.8M6.3 9.5h3.8",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.3 10.3l3.2 3.2",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  check: "M3 8.5 6.5 12 13 4.5",
  chevron: "M6 3.5 10.5 8 6 12.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6ZM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z",
  system: "M2.5 3.5h11v7h-11zM6 13.5h4M8 10.5v3",
  exit: "M6.5 2.5h-4v11h4M6 8h7.5M11 5.5 13.5 8 11 10.5",
  alert: "M8 2 1.8 13h12.4zM8 6.5v3M8 11.2v.3",
  stop: "M4 4h8v8H4z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.5 12 8l-7 4.5z",
  tool: "M9.8 2.7a3.3 3.3 0 0 0-1 4.4L3 12.9l.9.9 5.7-5.8a3.3 3.3 0 0 0 4.1-4.2L11.8 5.6 10.4 5l-.4-1.3z",
  agent: "M4 5.5h8v7H4zM8 3v2.5M6.3 8.3v.7M9.7 8.3v.7M6.3 11h3.4",
  file: "M4 2.5h5.5l2.5 2.5v8.5H4zM9.5 2.5V5H12",
  plan: "M2.5 3.5h4v3h-4zM9.5 9.5h4v3h-4zM6.5 5h5v4.5",
  route: "M3 12.5c0-5 10-3 10-9M10.5 5.5 13 3l1.5 2.5M3 12.5a.5.5 0 1 0 0 .1",
  back: "M10 3.5 5.5 8l4.5 4.5",
  refresh: "M13 8a5 5 0 1 1-1.5-3.5M13 2.5v2.7h-2.7",
  link: "M6.5 9.5l3-3M7 4.5l1.3-1.3a3 3 0 0 1 4.4 4.4L11.5 9M9 11.5l-1.3 1.3a3 3 0 0 1-4.4-4.4L4.5 7",
  compare: "M5.5 2.5v11M10.5 2.5v11M5.5 5H2.5v6h3M10.5 5h3v6h-3",
  flow: "M2.5 8h11M9.5 4.5 13.5 8l-4 3.5",
};

/**
 * An icon. It is hidden from screen readers: the text beside it says the same.
 * @param {{name: string, size?: number}} props
 */
export function Icon({ name, size = 16 }) {
  return html`<svg
    class="icon"
    width=${size}
    height=${size}
    viewBox="0 0 16 16"
    fill="none"
    stroke="currentColor"
    stroke-width="1.4"
    stroke-linecap="round"
    stroke-linejoin="round"
    aria-hidden="true"
  >
    <path d=${PATHS[name] ?? PATHS.file} />
  </svg>`;
}
