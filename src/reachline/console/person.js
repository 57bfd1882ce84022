// Who is logged in, where a center knows people; leads to the log-in page once nobody is.

import { fill, h } from "./dom.js";

const EVERY = 30_000;

/** Shows name and role with a way out; nothing where the center tells nobody apart. */
export function person(box) {
  async function look() {
    try {
      const answer = await fetch("/api/v1/session", { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (answer.status === 401) return leave();
      if (answer.ok) draw(await answer.json());
    } catch (_away) {
      return; // the feed says that the center is away
    }
  }

  function draw({ name, role }) {
    box.hidden = !name;
    if (!name || box.dataset.name === `${name} ${role}`) return;
    box.dataset.name = `${name} ${role}`;
    const out = h("button", { type: "button", class: "plain" }, "Log out");
    out.addEventListener("click", async () => {
      await fetch("/api/v1/session", { method: "DELETE", signal: AbortSignal.timeout(5000) }).catch(() => null);
      leave();
    });
    fill(box, h("span", {}, `${name} · ${role}`), out);
  }

  look();
  setInterval(look, EVERY);
  return look;
}

function leave() {
  location.replace(`/login.html?next=${encodeURIComponent(location.pathname)}`);
}
