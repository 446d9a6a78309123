/** The current time, for ages. It ticks once a second, and not in a hidden tab. */

import { signal } from "../vendor/preact.js";

/** Milliseconds since 1970. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) now.value = Date.now();
});
