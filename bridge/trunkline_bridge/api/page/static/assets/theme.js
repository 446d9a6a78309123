// Sets the theme before the first paint; store/theme.js changes it later.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("trunkline.theme");
  } catch {
    // Storage is blocked: the system's theme applies.
  }
  if (theme !== "light" && theme !== "dark") {
    theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
  document.documentElement.dataset.theme = theme;
})();
