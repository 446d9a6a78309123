/** The links between the views of one task. */

import { href } from "../router.js";
import { html } from "../vendor/preact.js";

/**
 * Links to the views of a task.
 * @param {{id: string, without: "task" | "chat" | "trace" | "wire", agent?: string, isChild?: boolean}} props
 *   without: the view that shows the links. isChild: other agents called it, so it takes no messages from users.
 */
export function TaskLinks({ id, without, agent = "", isChild = false }) {
  /** @type {[string, string, string][]} */
  const links = [
    ["task", "Task", href(["tasks", id])],
    ["chat", "Chat", href(["chat"], { agent, task: id })],
    ["trace", "Trace", href(["tasks", id, "trace"])],
    ["wire", "Wire", href(["wire"], { task: id })],
  ];
  const shown = links.filter(([view]) => view !== without && !(isChild && view === "chat"));
  return html`<nav class="row task-links" aria-label="Views of the task">${shown.map(([view, title, link]) => html`<a class="button plain" key=${view} href=${link}>${title}</a>`)}</nav>`;
}
