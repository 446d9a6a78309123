/** The views of the page: each is one module, named here and loaded when it is first shown. */

/**
 * @typedef {object} ViewProps
 * @property {Record<string, string>} params The named segments of the path: `id` in `tasks/:id`.
 * @property {URLSearchParams} query
 *
 * @typedef {object} View
 * @property {string} path Segments; one that begins with a colon is a parameter.
 * @property {string} title
 * @property {() => Promise<{default: (props: ViewProps) => any}>} load Its module's default export is the view.
 * @property {string} [styles] Name of its style sheet in `styles/views`; views of a subject share one.
 * @property {string} [icon] A view with an icon is in the navigation.
 * @property {string} [key] Shortcut, after `g`.
 * @property {(session: import("./store/session.js").Session) => boolean} [isFor] True for the sessions that see it; without it, all do.
 */

/** @type {View[]} */
export const VIEWS = [
  { path: "mesh", title: "Mesh", icon: "mesh", key: "m", styles: "mesh", load: () => import("./views/mesh.js") },
  { path: "chat", title: "Chat", icon: "chat", key: "c", styles: "chat", load: () => import("./views/chat.js") },
  { path: "tasks", title: "Tasks", icon: "tasks", key: "t", styles: "tasks", load: () => import("./views/tasks.js") },
  { path: "tasks/:id", title: "Task", styles: "tasks", load: () => import("./views/task.js") },
  { path: "tasks/:task/trace", title: "Trace of a task", styles: "traces", load: () => import("./views/trace.js") },
  { path: "traces", title: "Traces", icon: "traces", key: "r", styles: "traces", load: () => import("./views/traces.js") },
  { path: "traces/:id", title: "Trace", styles: "traces", load: () => import("./views/trace.js") },
  { path: "traces/:id/with/:other", title: "Traces compared", styles: "traces", load: () => import("./views/trace_compare.js") },
  {
    ...{ path: "workflows", title: "Workflows", icon: "workflows", key: "w", styles: "workflows", isFor: (session) => session.features.workflows },
    load: () => import("./views/workflows.js"),
  },
  { path: "workflows/:name", title: "Workflow", styles: "workflows", load: () => import("./views/workflow.js") },
  { path: "workflows/:name/runs/:id", title: "Run of a workflow", styles: "workflows", load: () => import("./views/workflow_run.js") },
  {
    ...{ path: "messages", title: "Messages", icon: "messages", key: "e", styles: "messages", isFor: (session) => session.features.messages },
    load: () => import("./views/messages.js"),
  },
  { path: "messages/:id", title: "Conversation", styles: "messages", load: () => import("./views/conversation.js") },
  { path: "wire", title: "Wire", icon: "wire", key: "i", styles: "wire", load: () => import("./views/wire.js") },
  { path: "approvals", title: "Approvals", icon: "approvals", key: "a", styles: "operations", load: () => import("./views/approvals.js") },
  { path: "webhooks", title: "Webhooks", icon: "webhooks", key: "h", styles: "operations", load: () => import("./views/webhooks.js") },
  { path: "audit", title: "Audit", icon: "audit", key: "u", styles: "operations", isFor: (who) => who.isOperator, load: () => import("./views/audit.js") },
];

/** @type {Map<string, Promise<void>>} */
const styleSheets = new Map();

/**
 * Loads the module and the style sheet of a view.
 * @param {View} view
 */
export async function loadView(view) {
  const [module] = await Promise.all([view.load(), view.styles && loadStyles(view.styles)]);
  return module.default;
}

/** @param {string} name */
function loadStyles(name) {
  const loading = styleSheets.get(name) ?? appendStyles(name);
  styleSheets.set(name, loading);
  return loading;
}

/**
 * @param {string} name
 * @returns {Promise<void>}
 */
function appendStyles(name) {
  return new Promise((resolve, reject) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL(`assets/styles/views/${name}.css`, document.baseURI).href;
    link.onload = () => resolve();
    link.onerror = () => {
      styleSheets.delete(name);
      link.remove();
      reject(new Error(`${link.href} could not be loaded`));
    };
    document.head.append(link);
  });
}

/**
 * Finds the view of a path.
 * @param {string[]} segments
 * @returns {{view: View, params: Record<string, string>} | null}
 */
export function findView(segments) {
  for (const view of VIEWS) {
    const pattern = view.path.split("/");
    if (pattern.length !== segments.length) continue;
    if (pattern.every((part, index) => part.startsWith(":") || part === segments[index])) {
      const named = pattern.map((part, index) => [part.slice(1), segments[index] ?? ""]);
      return { view, params: Object.fromEntries(named.filter((_, index) => pattern[index]?.startsWith(":"))) };
    }
  }
  return null;
}
