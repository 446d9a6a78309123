/** Routes by the URL's fragment: `#/tasks/ID?at=12` is the view `tasks/:id` with `at`. */

import { computed, signal } from "./vendor/preact.js";

/**
 * @typedef {object} Route
 * @property {string} path Without the leading slash: `tasks/ID`.
 * @property {string[]} segments Decoded.
 * @property {URLSearchParams} query
 */

/** @returns {Route} */
function parse() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const segments = path.split("/").filter(Boolean).map(decode);
  return { path, segments, query: new URLSearchParams(query) };
}

/** @param {string} segment */
function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** The current route. */
export const route = signal(parse());
addEventListener("hashchange", () => {
  route.value = parse();
});

/** The path without its query: a view with another query is the same view. */
export const routePath = computed(() => route.value.path);

/**
 * Returns the link to a view.
 * @param {string[]} segments Not encoded.
 * @param {Record<string, string | number | null | undefined>} [query] Empty values are left out.
 */
export function href(segments, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return `#/${segments.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/**
 * Goes to a view.
 * @param {string} link From `href`.
 * @param {{replace?: boolean}} [options] replace: without a new entry in the history.
 */
export function navigate(link, { replace = false } = {}) {
  if (!replace) {
    location.hash = link;
    return;
  }
  history.replaceState(null, "", link);
  route.value = parse();
}

/**
 * Changes parts of the current query, without a new entry in the history.
 * @param {Record<string, string | number | null | undefined>} changes Empty values remove a part.
 */
export function changeQuery(changes) {
  const { path, segments, query } = route.peek();
  // A link that was just followed has changed the location, and `route` follows in an event: this query is about to go.
  const next = parse();
  if (next.path !== path || next.query.toString() !== query.toString()) return;
  navigate(href(segments, { ...Object.fromEntries(query), ...changes }), { replace: true });
}
