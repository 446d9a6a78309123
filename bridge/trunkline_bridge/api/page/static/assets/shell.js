/** The frame around every view: navigation, the user's menu, shortcuts, and the view itself. */

import { Button, Empty, ErrorState, Loading } from "./components/basics.js";
import { Dialog } from "./components/dialog.js";
import { Icon } from "./components/icons.js";
import { plural } from "./format.js";
import { href, navigate, route, routePath } from "./router.js";
import { waitingApprovals } from "./store/approvals.js";
import { hasCredential } from "./store/credentials.js";
import { session, signOut } from "./store/session.js";
import { chooseTheme, themeChoice } from "./store/theme.js";
import { html, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { VIEWS, findView, loadView } from "./views.js";

/**
 * @typedef {import("./views.js").View} View
 * @typedef {import("./views.js").ViewProps} ViewProps
 */

const HOME = "mesh";
const SEQUENCE_MS = 1200;
const MOST_COUNTED = 99;

/** @returns {View[]} */
function navigation() {
  const current = session.value;
  return VIEWS.filter((view) => view.icon && current && (view.isFor?.(current) ?? true));
}

export function Shell() {
  const [menuOpen, setMenuOpen] = useState(false);
  const [helpOpen, setHelpOpen] = useState(false);
  useShortcuts(() => setHelpOpen(true));
  useEffect(() => setMenuOpen(false), [routePath.value]);
  if (!route.value.segments.length) navigate(href([HOME]), { replace: true });
  return html`
    <a class="skip-link" href="#main" onClick=${focusMain}>Skip to content</a>
    <div class="shell ${menuOpen ? "menu-open" : ""}">
      <header class="top-bar">
        <${Button} kind="quiet" icon="menu" label=${menuOpen ? "Close navigation" : "Open navigation"} onClick=${() => setMenuOpen(!menuOpen)} />
        <${Brand} />
      </header>
      ${menuOpen && html`<div class="menu-scrim" onClick=${() => setMenuOpen(false)}></div>`}
      <${Sidebar} onHelp=${() => setHelpOpen(true)} />
      <main id="main" tabindex="-1"><${CurrentView} /></main>
    </div>
    ${helpOpen && html`<${Help} onClose=${() => setHelpOpen(false)} />`}
  `;
}

/** @param {Event} event */
function focusMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Brand() {
  return html`<a class="brand" href=${href([HOME])}><img src="assets/icon.svg" width="20" height="20" alt="" />Trunkline</a>`;
}

/** @param {{onHelp: () => void}} props */
function Sidebar({ onHelp }) {
  const current = route.value.segments[0];
  const who = session.value;
  return html`<aside class="sidebar" aria-label="Navigation and account">
    <${Brand} />
    <nav aria-label="Views">
      <ul>
        ${navigation().map(
          (view) => html`<li key=${view.path}>
            <a class="nav-link" href=${href([view.path])} aria-current=${view.path === current ? "page" : undefined}>
              <${Icon} name=${view.icon} /><span class="grow">${view.title}</span>${view.path === "approvals" && html`<${WaitingCount} />`}
            </a>
          </li>`,
        )}
      </ul>
    </nav>
    <div class="sidebar-foot">
      <${ThemeSwitch} />
      <div class="row account">
        <div class="grow">
          <div class="truncate" title=${who?.user}>${who?.user || "anonymous"}</div>
          <div class="truncate muted small" title=${who?.account}>${who?.isOperator ? "operator" : who?.account}</div>
        </div>
        <${Button} kind="quiet" label="Keyboard shortcuts" onClick=${onHelp}>?<//>
        ${hasCredential() && html`<${Button} kind="quiet" icon="exit" label="Sign out" onClick=${signOut} />`}
      </div>
      <div class="muted small">Version ${who?.version}</div>
    </div>
  </aside>`;
}

function WaitingCount() {
  const { length } = waitingApprovals.value;
  return length > 0 && html`<span class="count nav-count"><span aria-hidden="true">${length > MOST_COUNTED ? `${MOST_COUNTED}+` : length}</span><span class="visually-hidden">${plural(length, "call")} to decide</span></span>`;
}

function ThemeSwitch() {
  /** @type {["system" | "light" | "dark", string, string][]} */
  const choices = [
    ["light", "sun", "Light theme"],
    ["dark", "moon", "Dark theme"],
    ["system", "system", "Theme of the system"],
  ];
  return html`<div class="segments" role="group" aria-label="Theme">
    ${choices.map(
      ([choice, icon, label]) => html`<button
        key=${choice}
        type="button"
        aria-label=${label}
        title=${label}
        aria-pressed=${String(themeChoice.value === choice)}
        onClick=${() => chooseTheme(choice)}
      >
        <${Icon} name=${icon} size=${14} />
      </button>`,
    )}
  </div>`;
}

/** @type {Map<View, (props: ViewProps) => any>} */
const loaded = new Map();

function CurrentView() {
  const { segments, query } = route.value;
  const found = findView(segments);
  const view = found?.view;
  const [, redraw] = useState(0);
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const isFirst = useRef(true);
  const path = routePath.value;

  const load = () => {
    setProblem(null);
    if (!view) return;
    loadView(view).then(
      (component) => {
        loaded.set(view, component);
        redraw((count) => count + 1);
      },
      () => setProblem(new Error("A part of the page could not be loaded from the bridge.")),
    );
  };
  useEffect(() => {
    if (view && !loaded.has(view)) load();
  }, [view]);

  const Module = view && loaded.get(view);
  // Before the paint: a key may move the focus as soon as the view is seen.
  useLayoutEffect(() => {
    if (!view || !Module) return;
    document.title = `${view.title} · Trunkline`;
    // A change of view moves the focus to its heading, as a new page would.
    if (!isFirst.current) /** @type {HTMLElement | null} */ (document.querySelector("#main h1"))?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [path, Module]);

  if (!segments.length) return null;
  if (!view) {
    return html`<div class="view"><h1 tabindex="-1">Not found</h1>
      <${Empty} title="There is no such view">Choose one in the navigation.<//>
    </div>`;
  }
  if (problem) return html`<div class="view"><h1 tabindex="-1">${view.title}</h1><${ErrorState} error=${problem} onRetry=${load} /></div>`;
  if (!Module) return html`<div class="view"><h1 tabindex="-1">${view.title}</h1><${Loading} /></div>`;
  return html`<${Guarded} key=${view.path}><${Module} params=${found.params} query=${query} /><//>`;
}

/**
 * Shows an error of a view in its place, so that the rest of the page keeps working.
 * @param {{children: any}} props
 */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  if (error) return html`<div class="view"><h1 tabindex="-1">This view failed</h1><${ErrorState} error=${error} onRetry=${reset} /></div>`;
  return children;
}

/** @param {() => void} onHelp */
function useShortcuts(onHelp) {
  useEffect(() => {
    // The time at which `g` was pressed.
    let startedMs = -Infinity;
    /** @param {KeyboardEvent} event */
    const onKeyDown = (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (target.matches("input, select, textarea, [contenteditable]") || document.querySelector("dialog[open]")) return;
      if (performance.now() - startedMs < SEQUENCE_MS) {
        startedMs = -Infinity;
        const view = navigation().find((each) => each.key === event.key);
        if (view) {
          event.preventDefault();
          navigate(href([view.path]));
        }
        return;
      }
      if (event.key === "g") startedMs = performance.now();
      else if (event.key === "?") onHelp();
      else if (event.key === "/") {
        const field = /** @type {HTMLElement | null} */ (document.querySelector('[data-shortcut="/"]'));
        if (field) {
          event.preventDefault();
          field.focus();
        }
      }
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}

/** @param {{onClose: () => void}} props */
function Help({ onClose }) {
  const keys = [
    ...navigation().filter((view) => view.key).map((view) => [`g ${view.key}`, `Go to ${view.title}`]),
    ["/", "Search"],
    ["↑ ↓ or k j", "Move between rows"],
    ["Enter", "Open the row"],
    ["Esc", "Close"],
    ["?", "This help"],
  ];
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
    <dl class="shortcuts">
      ${keys.map(([key, what]) => html`<div key=${key}><dt>${/** @type {string} */ (key).split(" ").map((part) => (part === "or" ? " or " : html`<kbd>${part}</kbd>`))}</dt><dd>${what}</dd></div>`)}
    </dl>
  <//>`;
}
