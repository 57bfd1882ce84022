// Dark or light: the system's wish until the button says otherwise; the choice stays in this browser.

const KEY = "reachline.theme";

/** What a colour variable of the sheet comes to in the theme of now, for canvases. */
export function colour(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Apply the kept choice and wire the button; `changed` is called whenever colours may differ. */
export function theme(button, changed) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = read();
  if (kept) document.documentElement.dataset.theme = kept;
  button.addEventListener("click", () => {
    const isDark = (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    keep(document.documentElement.dataset.theme);
    changed();
  });
  dark.addEventListener("change", changed);
}

function read() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "dark" || kept === "light" ? kept : null;
  } catch (_blocked) {
    return null; // storage is refused in some private windows: the system's wish stands
  }
}

function keep(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch (_blocked) {
    return; // as above: the choice lasts as long as the page
  }
}
