// Colours, resolved for drawing, and the choice between dark and light.

export const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const THEMES = ["auto", "dark", "light"];
const resolved = new Map();

// What a custom property of the style sheet stands for now: canvases know no var() and no light-dark().
export function colour(name) {
  if (!resolved.has(name)) {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    resolved.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return resolved.get(name);
}

function keep(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("stabmon-theme", theme);
  } catch {
    // A browser that keeps nothing: it holds until the page is left.
  }
}

function kept() {
  try {
    return localStorage.getItem("stabmon-theme") ?? "auto";
  } catch {
    return "auto";
  }
}

// The button goes round auto, dark, light. `redraw` is called whenever colours differ.
export function watchTheme(button, redraw) {
  const apply = (theme) => {
    keep(THEMES.includes(theme) ? theme : "auto");
    resolved.clear();
    button.textContent = `colours: ${document.documentElement.dataset.theme}`;
    redraw();
  };
  button.addEventListener("click", () => apply(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(document.documentElement.dataset.theme));
  apply(kept());
}
