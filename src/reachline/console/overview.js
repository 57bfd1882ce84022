// Above the table: what is wrong now, and how each cluster's traffic is divided.

import { fill, h, say } from "./dom.js";
import { duration, reasonWords } from "./format.js";
import { nextWords, severity, stateOf, STATES } from "./states.js";

/** More cards or incidents than this push the table off the first screen. */
const CARDS = 6;
const INCIDENTS = 4;
/** Lines a bar can name one by one. */
const PARTS = 8;
/** Why a cluster's ordinary rules are suspended, in words. */
const PANICS = {
  fail_open: "every line is open: the least bad one carries all (fail-open)",
  panic: "more than half of the weight is lost: whatever works carries traffic (panic)",
  observers: "all lines look bad at once though calls go well: the observers are not believed",
  blast: "a line that should be out is held: no more of the cluster may be open",
  last_line: "the last closed line is held, though it is judged failed",
};
/** A drawing a second is as fast as people read. */
const EVERY = 900;

export class Overview {
  #store;
  #feed;
  #incidents;
  #clusters;
  #drawnAt = -Infinity;
  #cards = new Map();

  constructor(incidents, clusters, store, feed) {
    this.#incidents = incidents;
    this.#clusters = clusters;
    this.#store = store;
    this.#feed = feed;
  }

  /** Draw, at most once a second unless `now`. */
  draw({ now = false } = {}) {
    if (!now && performance.now() - this.#drawnAt < EVERY) return;
    this.#drawnAt = performance.now();
    this.#drawIncidents();
    this.#drawClusters();
  }

  #drawIncidents() {
    const bad = [...this.#store.lines.values()].filter((line) => !["healthy", "unknown"].includes(stateOf(line)));
    bad.sort((one, other) => severity(one) - severity(other) || one.since - other.since);
    const title = h("h2", {}, "Now");
    if (!bad.length) {
      const watched = this.#store.lines.size;
      const unknown = [...this.#store.lines.values()].filter((line) => stateOf(line) === "unknown").length;
      const words = unknown === watched ? "collecting the first samples" : "no incident: every judged line is healthy";
      this.#incidents.dataset.calm = "";
      return fill(this.#incidents, title, h("p", { class: "calm" }, h("span", { "aria-hidden": "true" }, unknown === watched ? "○ " : "● "), words));
    }
    delete this.#incidents.dataset.calm;
    const items = bad.slice(0, INCIDENTS).map((line) => this.#incident(line));
    const more = bad.length > INCIDENTS ? h("li", { class: "more" }, `and ${bad.length - INCIDENTS} more`) : null;
    const list = h("ul", {}, ...items);
    if (more) list.append(more);
    fill(this.#incidents, title, list);
  }

  #incident(line) {
    const state = stateOf(line);
    const now = this.#feed.now;
    const next = nextWords(line, now, duration);
    const facts = [`for ${duration(now - line.since)}`, reasonWords(line.reason), next].filter(Boolean).join(" · ");
    return h("li", { "data-state": state },
      h("span", { class: "chip", "data-state": state }, h("span", { class: "sign", "aria-hidden": "true" }, STATES[state].sign), STATES[state].word),
      h("a", { href: `#/line/${encodeURIComponent(line.line)}` }, line.line), h("span", { class: "facts" }, facts));
  }

  #drawClusters() {
    const groups = Map.groupBy(this.#store.lines.values(), (line) => line.cluster);
    const names = [...groups.keys()].sort();
    for (const [name, card] of this.#cards) if (!groups.has(name)) { card.root.remove(); this.#cards.delete(name); }
    for (const name of names.slice(0, CARDS)) this.#card(name, groups.get(name));
    const rest = names.length - CARDS;
    let more = this.#clusters.querySelector(".more");
    if (rest <= 0) return more?.remove();
    if (!more) this.#clusters.append((more = h("p", { class: "more" })));
    say(more, `and ${rest} more clusters`);
  }

  #card(name, lines) {
    let card = this.#cards.get(name);
    if (!card) {
      const count = h("span", { class: "count" });
      const bar = h("div", { class: "share" });
      const counts = h("p", { class: "counts" });
      const panic = h("p", { class: "panic" });
      const root = h("article", { class: "card", "aria-label": `Cluster ${name}` }, h("h2", {}, name, " ", count), bar, counts, panic);
      this.#cards.set(name, (card = { root, count, bar, counts, panic, parts: "" }));
      this.#clusters.insertBefore(root, this.#clusters.querySelector(".more"));
    }
    say(card.count, lines.length === 1 ? "1 line" : `${lines.length} lines`);
    say(card.counts, tally(lines));
    const panic = this.#store.panic[name];
    say(card.panic, panic ? `⚠ ${PANICS[panic] ?? panic}` : "");
    const parts = divided(lines);
    const drawn = JSON.stringify(parts);
    if (drawn !== card.parts) { card.parts = drawn; drawParts(card.bar, parts); }
  }
}

/** How the cluster's weight is divided, by line; by state where the lines are too many to tell apart. Shares add up to 1. */
function divided(lines) {
  const total = lines.reduce((sum, line) => sum + line.weight, 0);
  if (lines.length <= PARTS) {
    const sorted = lines.toSorted((one, other) => (one.line < other.line ? -1 : 1));
    return sorted.map((line) => ({ name: line.line.split("/").slice(1).join("/"), state: stateOf(line), share: total ? line.weight / total : 0 }));
  }
  const weights = new Map();
  for (const line of lines.toSorted((one, other) => severity(other) - severity(one))) {
    const state = stateOf(line);
    weights.set(state, (weights.get(state) ?? 0) + line.weight);
  }
  return [...weights].map(([state, weight]) => ({ name: STATES[state].word, state, share: total ? weight / total : 0 }));
}

function drawParts(bar, parts) {
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `Share of new calls: ${parts.map((part) => `${part.name} ${whole(part.share)}`).join(", ")}`);
  while (bar.children.length > parts.length) bar.lastElementChild.remove();
  parts.forEach((part, at) => {
    let piece = bar.children[at];
    if (!piece) bar.append((piece = h("div", { class: "part" }, h("span", { class: "part-name" }), h("span", { class: "part-share" }))));
    piece.dataset.state = part.state;
    piece.style.flexGrow = String(Math.max(0.001, part.share));
    piece.toggleAttribute("data-empty", part.share === 0);
    piece.title = `${part.name}: ${whole(part.share)} of new calls`;
    say(piece.firstElementChild, part.name);
    say(piece.lastElementChild, whole(part.share));
  });
}

function whole(share) {
  return `${Math.round(share * 100)} %`;
}

/** "3 healthy · 1 open": worst first, and only what there is. */
function tally(lines) {
  const counts = new Map();
  for (const line of lines.toSorted((one, other) => severity(one) - severity(other))) {
    const state = stateOf(line);
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return [...counts].map(([state, count]) => `${STATES[state].sign} ${count} ${STATES[state].word}`).join("   ");
}
