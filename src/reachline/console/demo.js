// The demo's own words: what happens now and where to look. A center that runs no demo answers 404 once, and that is all.

import { fill, h, say } from "./dom.js";
import { duration } from "./format.js";

const EVERY = 1000;

/** Ask `/api/v1/demo` each second while the page is visible, as long as there is a demo. */
export function demo(section) {
  let parts = null;
  let isOver = false;
  const ask = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch("/api/v1/demo", { cache: "no-store", signal: AbortSignal.timeout(EVERY * 3) });
        isOver = answer.status === 404;
        if (answer.ok) { parts ??= build(section); show(parts, await answer.json()); }
      } catch (_away) {
        isOver = false; // the center is away: the page itself says so, and we ask again
      }
    }
    if (isOver) section.hidden = true;
    else setTimeout(ask, EVERY);
  };
  ask();
}

function build(section) {
  const title = h("h2");
  const text = h("p", { class: "say", "aria-live": "polite" });
  const next = h("p", { class: "next" });
  const steps = h("ol", { class: "steps", "aria-label": "The story" });
  const calls = h("p", { class: "calls" });
  fill(section, h("div", { class: "words" }, h("span", { class: "tag" }, "Demo"), title, text), h("div", { class: "side" }, steps, calls, next));
  section.hidden = false;
  return { title, text, next, steps, calls };
}

function show({ title, text, next, steps, calls }, story) {
  say(title, story.title);
  say(text, story.text);
  say(next, [story.elapsed === undefined ? null : `story at ${duration(story.elapsed)}`, story.next].filter(Boolean).join(" · "));
  say(calls, callWords(story.calls));
  drawSteps(steps, story.steps ?? [], story.phase);
}

/** The real calls the demo makes, per line: {"line": calls a second}. */
function callWords(calls) {
  if (!calls) return "";
  const total = Object.values(calls.rates).reduce((sum, rate) => sum + rate, 0);
  const each = Object.entries(calls.rates).map(([line, rate]) => `${line.split("/").at(-1)} ${Math.round(rate)}`);
  const failed = calls.failed ? `, ${calls.failed.toFixed(1)} failing` : ", none failing";
  const open = calls.open?.length ? `; the callers' own breaker is open on ${calls.open.map((line) => line.split("/").at(-1)).join(", ")}` : "";
  return `${Math.round(total)} real calls/s: ${each.join(" · ")}${failed}${open}`;
}

function drawSteps(list, steps, phase) {
  if (list.children.length !== steps.length) fill(list, ...steps.map((step) => h("li", {}, step.title)));
  const now = steps.findIndex((step) => step.phase === phase);
  [...list.children].forEach((item, at) => {
    const state = at < now ? "past" : at === now ? "now" : "ahead";
    if (item.dataset.state === state) return;
    item.dataset.state = state;
    if (state === "now") item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  });
}
