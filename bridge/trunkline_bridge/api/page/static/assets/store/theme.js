/** The theme: light, dark, or the system's. `theme.js` sets the first one before the page is painted. */

import { signal } from "../vendor/preact.js";

/** @typedef {"system" | "light" | "dark"} ThemeChoice */

const KEY = "trunkline.theme";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

/** @returns {ThemeChoice} */
function storedChoice() {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    return "system";
  }
}

/** The user's choice. */
export const themeChoice = signal(storedChoice());

function apply() {
  const choice = themeChoice.value;
  const system = systemIsDark.matches ? "dark" : "light";
  document.documentElement.dataset.theme = choice === "system" ? system : choice;
}

systemIsDark.addEventListener("change", apply);

/**
 * Changes the theme, for later visits too.
 * @param {ThemeChoice} choice
 */
export function chooseTheme(choice) {
  themeChoice.value = choice;
  try {
    if (choice === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, choice);
  } catch {
    // Storage is blocked: the choice lasts until the page is closed.
  }
  apply();
}
