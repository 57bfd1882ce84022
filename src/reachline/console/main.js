// Wires the page together: one feed, one store, the views that read it, keys and addresses. No logic of its own.

import { demo } from "./demo.js";
import { Detail } from "./detail.js";
import { fill, h, say } from "./dom.js";
import { duration } from "./format.js";
import { Feed } from "./feed.js";
import { followers } from "./followers.js";
import { mesh } from "./mesh.js";
import { Overview } from "./overview.js";
import { person } from "./person.js";
import { STATES } from "./states.js";
import { Store } from "./store.js";
import { Table } from "./table.js";
import { theme } from "./theme.js";

const at = (id) => document.getElementById(id);
/** Seconds between two points of a sparkline: 60 of them are the two minutes of the judged window. */
const SAMPLE_EVERY = 2;

const store = new Store();
const feed = new Feed(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/ws`, { snapshot, delta, tick });
const table = new Table(at("lines-grid"), store, feed, (id) => { location.hash = `#/line/${encodeURIComponent(id)}`; });
const overview = new Overview(at("incidents"), at("clusters"), store, feed);
const detail = new Detail(at("line"), store, feed);
/** What moves is drawn together, this often at most, in ms: each drawing of its own is a pass over the screen for the browser. */
const DRAW_EVERY = 1000;
let sampledAt = 0;
let drawnAt = -Infinity;
let drawing = 0;
let lastOpen = null;

function snapshot(message) {
  store.snapshot(message);
  table.reshape();
  overview.draw({ now: true });
  detail.tick();
  freshness();
  history();
}

function delta(message) {
  const { changed, reshaped } = store.delta(message);
  if (reshaped) table.reshape();
  else table.touch(changed);
  soon();
}

function tick(message) {
  if (message.now - sampledAt < SAMPLE_EVERY - 0.2) return;
  sampledAt = message.now;
  store.sample();
  table.sampled();
  soon();
}

/** Draw what moved: now, or a second after the last time. */
function soon() {
  drawing ||= setTimeout(draw, Math.max(0, drawnAt + DRAW_EVERY - performance.now()));
}

function draw() {
  drawing = 0;
  drawnAt = performance.now();
  table.draw();
  table.tick();
  overview.draw({ now: true });
  if (detail.id) detail.tick();
}

/** Decisions made before this page was opened. */
async function history() {
  try {
    const answer = await fetch("/api/v1/changes?limit=500", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (answer.ok) store.learn((await answer.json()).changes);
  } catch (_away) {
    return; // the feed says that the center is away
  }
  table.touch(store.lines.keys());
  soon();
}

/** Once a second: how old is what is shown? Runs on our clock, since a dead center sends no ticks. */
function freshness() {
  const known = store.revision >= 0;
  const stale = known && feed.stale;
  document.body.toggleAttribute("data-stale", stale);
  at("freshness").dataset.state = stale ? "stale" : known ? "live" : "connecting";
  const age = duration(feed.age / 1000);
  at("freshness").title = store.agents.filter((agent) => agent.doubt).map(doubts).join("\n");
  say(at("freshness-text"), stale ? `data is ${age} old` : known ? `live · ${vantages()} · version ${store.version}` : "connecting…");
  at("stale").hidden = !stale;
  if (stale) say(at("stale"), `The center does not answer. What you see is ${age} old; this page comes back by itself.`);
}

/** "3 vantages", or "2 of 3 vantages" while one does not report; and how many of them doubt themselves. */
function vantages() {
  const all = store.agents.length;
  const here = store.agents.filter((agent) => agent.state === "attached").length;
  const doubting = store.agents.filter((agent) => agent.doubt).length;
  const doubt = doubting ? `, ${doubting} in doubt` : "";
  return `${here === all ? all : `${here} of ${all}`} vantage${all === 1 ? "" : "s"}${doubt}`;
}

/** An agent's reasons to doubt itself, in its own words. */
function doubts(agent) {
  return `${agent.agent} doubts itself (${agent.doubt} of 7): ${agent.doubts.join("; ") || "fading"}`;
}

function second() {
  freshness();
  soon();
}

function route() {
  const [, id] = /^#\/line\/(.+)$/.exec(location.hash) ?? [];
  const list = !id;
  at("list").hidden = at("overview").hidden = !list;
  if (id) {
    lastOpen = decodeURIComponent(id);
    document.title = `${lastOpen} · Reachline`;
    scrollTo(0, 0);
    return void detail.open(lastOpen);
  }
  document.title = "Reachline";
  detail.close();
  if (lastOpen) table.focus(lastOpen);
  lastOpen = null;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
  const typing = event.target === at("filter");
  if (event.key === "Escape") escape(typing);
  else if (typing && ["ArrowDown", "Enter"].includes(event.key)) table.focus();
  else if (typing) return;
  else if (event.key === "/" && !detail.id) at("filter").focus();
  else if (event.key === "?") at("help").showModal();
  else if (event.key === "s" && !detail.id) table.sort();
  else if (["ArrowDown", "j"].includes(event.key) && event.target === document.body && !detail.id) table.focus();
  else return;
  event.preventDefault();
}

function escape(typing) {
  if (detail.id) location.hash = "#/";
  else if (typing || at("filter").value) {
    at("filter").value = "";
    table.filter("");
    table.focus();
  }
}

table.onshape = () => {
  const total = store.lines.size;
  say(at("shown"), table.shown === total ? String(total) : `${table.shown} of ${total}`);
  at("empty").hidden = table.shown > 0;
  say(at("empty"), total ? "No line matches the filter." : "This center watches no line yet.");
};
at("filter").addEventListener("input", (event) => table.filter(event.target.value));
at("help-open").addEventListener("click", () => at("help").showModal());
fill(at("legend"), ...Object.entries(STATES).map(([state, { sign, word, means }]) =>
  h("div", {}, h("dt", {}, h("span", { class: "chip", "data-state": state }, h("span", { class: "sign", "aria-hidden": "true" }, sign), word)), h("dd", {}, means))));
addEventListener("hashchange", route);
addEventListener("keydown", pressed);
theme(at("theme"), () => { table.restyle(); detail.restyle(); });
setInterval(second, 1000);
feed.connect();
route();
demo(at("demo"));
mesh(at("mesh"));
followers(at("followers"));
person(at("person"));
