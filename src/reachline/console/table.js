// The table of lines. Every line has a row, but only rows on screen are drawn: the rest are marked and wait.

import { fill, h, mark, say } from "./dom.js";
import { ago, latency, percent, reasonWords, UNKNOWN } from "./format.js";
import { drawSpark } from "./spark.js";
import { chipText, severity, share, stateOf, STATES } from "./states.js";
import { lossOf, POINTS } from "./store.js";
import { colour } from "./theme.js";

const SPARK = { width: 132, height: 26 };
/** Rows that move under the eye are hard to read, and moving many is dear: a sorted column settles this often, in ms. */
const SETTLE = 2000;
/** …and with many lines more seldom: this much longer for each, so that 500 of them stay below a tenth of a core. */
const SETTLE_PER_LINE = 20;

/** One column: its key for sorting (null: not sortable), title, and the value rows are ordered by. */
const COLUMNS = [
  { key: "state", title: "State", value: (line) => severity(line) },
  { key: "line", title: "Line", value: (line) => line.line },
  { key: "weight", title: "Weight", value: (line) => line.weight, number: true },
  { key: "score", title: "Score", value: (line) => line.score, number: true },
  { key: "p95", title: "P95", value: (line) => line.p95 ?? -1, number: true },
  { key: "loss", title: "Loss", value: (line) => lossOf(line) ?? -1, number: true },
  { key: null, title: "Last 2 min" },
  { key: "since", title: "Last change", value: (line) => -line.since },
];

/** Sort keys a press of `s` walks through. */
const KEYS = COLUMNS.map((column) => column.key).filter(Boolean);

export class Table {
  #store;
  #feed;
  #grid;
  #rows = new Map();
  #visible = new Set();
  #dirty = new Set();
  /** Lines whose sparkline is to be drawn anew: canvases are the dearest of a row, and get a point every other second only. */
  #dull = new Set();
  #order = [];
  #sort = { key: "line", down: false };
  #filter = "";
  #settledAt = 0;
  #heads = new Map();
  #active = null;
  #look = null;

  /** @param {HTMLElement} grid @param {(id: string) => void} open what Enter or a click does */
  constructor(grid, store, feed, open) {
    this.#grid = grid;
    this.#store = store;
    this.#feed = feed;
    this.open = open;
    this.onshape = () => {};
    this.#watcher = new IntersectionObserver((entries) => this.#seen(entries), { rootMargin: "80px 0px" });
    this.#head();
    grid.addEventListener("click", (event) => this.#clicked(event));
    grid.addEventListener("keydown", (event) => this.#pressed(event));
    grid.addEventListener("focusin", (event) => this.#focused(event));
    this.restyle();
  }

  #watcher;

  /** Number of lines that pass the filter. */
  get shown() {
    return this.#order.length;
  }

  /** The colours of the theme changed: read them again and draw. */
  restyle() {
    this.#look = { line: colour("--spark"), loss: colour("--loss"), room: POINTS, ...SPARK };
    for (const id of this.#visible) this.#dirty.add(id);
    this.sampled();
    this.draw();
  }

  /** Lines came or went, or everything is new: make rows, then draw. */
  reshape() {
    for (const [id, row] of this.#rows) if (!this.#store.lines.has(id)) this.#remove(id, row);
    for (const id of this.#store.lines.keys()) if (!this.#rows.has(id)) this.#add(id);
    for (const id of this.#store.lines.keys()) this.#dirty.add(id);
    this.sampled();
    this.arrange();
    this.draw();
  }

  /** These lines changed: `draw` shows it. */
  touch(ids) {
    for (const id of ids) this.#dirty.add(id);
  }

  get #pace() {
    return Math.max(SETTLE, SETTLE_PER_LINE * this.#store.lines.size);
  }

  /** New sparkline points for everything that is on screen: `draw` shows them. */
  sampled() {
    for (const id of this.#visible) this.#dull.add(id);
  }

  /** A second went by: ages move on. */
  tick() {
    const now = this.#feed.now;
    for (const id of this.#visible) {
      const row = this.#rows.get(id);
      const line = this.#store.lines.get(id);
      if (row && line) this.#age(row, line, now);
    }
  }

  filter(text) {
    this.#filter = text.trim().toLowerCase();
    this.arrange();
    this.draw();
  }

  /** Sort by a key, or by the next one; the same key again turns the order round. */
  sort(key = KEYS[(KEYS.indexOf(this.#sort.key) + 1) % KEYS.length]) {
    const column = COLUMNS.find((one) => one.key === key);
    const down = this.#sort.key === key ? !this.#sort.down : Boolean(column.number);
    this.#sort = { key, down };
    for (const [name, head] of this.#heads) {
      mark(head, "aria-sort", name === key ? (down ? "descending" : "ascending") : "none");
    }
    this.arrange();
    this.draw();
  }

  /** Put the keyboard on a line's row (the active one when none is named). */
  focus(id = this.#active) {
    const row = this.#rows.get(id) ?? this.#rows.get(this.#order[0]);
    row?.root.focus();
  }

  /** Draw what is dirty and on screen; a sorted column settles first, where it is time. */
  draw() {
    const now = this.#feed.now;
    if ((this.#sort.key !== "line" || this.#filter) && performance.now() - this.#settledAt > this.#pace) this.arrange();
    for (const id of this.#dirty) {
      if (!this.#visible.has(id)) continue;
      const line = this.#store.lines.get(id);
      this.#dirty.delete(id);
      if (line) this.#paint(this.#rows.get(id), line, now);
    }
    for (const id of this.#dull) if (this.#visible.has(id)) this.#spark(id);
    this.#dull.clear();
  }

  /** Bring rows into order, moving as few as possible. */
  arrange() {
    this.#settledAt = performance.now();
    const lines = [...this.#store.lines.values()].filter((line) => this.#passes(line));
    this.#order = ordered(lines, this.#sort).map((line) => line.line);
    const wanted = new Set(this.#order);
    for (const [id, row] of this.#rows) row.root.hidden = !wanted.has(id);
    let at = this.#body.firstElementChild;
    for (const id of this.#order) {
      const { root } = this.#rows.get(id);
      while (at && at.hidden && at !== root) at = at.nextElementSibling;
      if (at === root) at = at.nextElementSibling;
      else this.#body.insertBefore(root, at);
    }
    if (!wanted.has(this.#active)) this.#activate(this.#order[0] ?? null);
    mark(this.#grid, "aria-rowcount", String(this.#order.length + 1));
    this.onshape();
  }

  #passes(line) {
    if (!this.#filter) return true;
    const text = `${line.line} ${line.address} ${line.provider} ${STATES[stateOf(line)].word} ${line.health} ${line.reason}`;
    return this.#filter.split(/\s+/).every((word) => text.toLowerCase().includes(word));
  }

  #head() {
    const cells = COLUMNS.map((column) => {
      const sort = column.key === this.#sort.key ? "ascending" : column.key ? "none" : null;
      const inside = column.key
        ? h("button", { type: "button", "data-sort": column.key }, column.title)
        : h("span", {}, column.title);
      const head = h("div", { role: "columnheader", class: column.number ? "number" : null, "aria-sort": sort }, inside);
      if (column.key) this.#heads.set(column.key, head);
      return head;
    });
    this.#body = h("div", { role: "rowgroup", class: "rows" });
    fill(this.#grid, h("div", { role: "rowgroup", class: "heads" }, h("div", { role: "row", class: "row head" }, ...cells)), this.#body);
  }

  #body;

  #add(id) {
    const cell = (name, ...children) => h("div", { role: "gridcell", class: `cell ${name}` }, ...children);
    const sign = h("span", { class: "sign", "aria-hidden": "true" });
    const word = h("span");
    const chip = h("span", { class: "chip" }, sign, word);
    const [cluster, ...rest] = id.split("/");
    const name = h("span", { class: "name" }, h("span", { class: "cluster" }, `${cluster}/`), rest.join("/"));
    const address = h("span", { class: "address" });
    const figure = h("span", { class: "figure" });
    const level = h("span", { class: "level" });
    const score = h("span");
    const p95 = h("span");
    const loss = h("span");
    const canvas = h("canvas", { class: "spark", role: "img" });
    const age = h("span", { class: "age" });
    const move = h("span", { class: "move" });
    const why = h("span", { class: "why" });
    const root = h("div", { role: "row", class: "row", tabindex: -1, "data-line": id },
      cell("state", chip), cell("line", name, address),
      cell("weight number", figure, h("span", { class: "gauge", "aria-hidden": "true" }, level)),
      cell("score number", score), cell("p95 number", p95), cell("loss number", loss),
      cell("trend", canvas), cell("change", h("span", { class: "when" }, age, move), why));
    this.#rows.set(id, { root, chip, sign, word, address, figure, level, score, p95, loss, canvas, age, move, why });
    this.#body.append(root);
    this.#watcher.observe(root);
  }

  #remove(id, row) {
    this.#watcher.unobserve(row.root);
    row.root.remove();
    this.#rows.delete(id);
    this.#visible.delete(id);
    this.#dirty.delete(id);
  }

  #seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const id = target.dataset.line;
      if (isIntersecting) this.#visible.add(id);
      else this.#visible.delete(id);
      if (isIntersecting) this.#dirty.add(id);
      if (isIntersecting) this.#dull.add(id);
    }
    this.draw();
  }

  #paint(row, line, now) {
    const state = stateOf(line);
    mark(row.root, "data-state", state);
    mark(row.chip, "data-state", state);
    mark(row.chip, "title", STATES[state].means);
    say(row.sign, STATES[state].sign);
    say(row.word, chipText(line));
    say(row.address, line.via && line.via !== "direct" ? `${line.address} via ${line.via}` : line.address);
    say(row.figure, String(line.weight));
    row.level.style.transform = `scaleX(${line.base ? Math.min(1, line.weight / line.base) : 0})`;
    mark(row.figure.parentElement, "title", `${line.weight} of ${line.base} points${line.base ? `, ${share(line)} of its base` : ""}`);
    say(row.score, String(line.score ?? UNKNOWN));
    say(row.p95, latency(line.p95));
    this.#loss(row.loss, line);
    this.#age(row, line, now);
    const change = this.#store.lastChange.get(line.line);
    say(row.move, change && change.before.weight !== change.after.weight ? `${change.before.weight} → ${change.after.weight}` : "");
    say(row.why, reasonWords(line.reason || change?.rule || ""));
    mark(row.why, "title", line.reason || change?.rule || null);
  }

  #loss(node, line) {
    const loss = lossOf(line);
    say(node, percent(loss));
    mark(node, "class", loss ? "lossy" : null);
  }

  #age(row, line, now) {
    const at = this.#store.lastChange.get(line.line)?.at ?? line.since;
    say(row.age, at ? ago(now - at) : "");
  }

  #spark(id) {
    const row = this.#rows.get(id);
    const points = this.#store.sparks.get(id) ?? [];
    if (!row) return;
    drawSpark(row.canvas, points, this.#look);
    const worst = points.reduce((most, [, loss]) => Math.max(most, loss ?? 0), 0);
    mark(row.canvas, "aria-label", `P95 of the last two minutes, worst loss ${percent(worst)}`);
  }

  #clicked(event) {
    const sort = event.target.closest("[data-sort]");
    if (sort) return this.sort(sort.dataset.sort);
    const row = event.target.closest("[data-line]");
    // A click that ends a text selection is no wish to leave.
    if (row && !String(getSelection())) this.open(row.dataset.line);
  }

  #pressed(event) {
    const id = event.target.dataset?.line;
    if (!id || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.#order.indexOf(id);
    const page = Math.max(1, Math.floor(innerHeight / (this.#rows.get(id).root.offsetHeight || 44)) - 3);
    const last = this.#order.length - 1;
    const to = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: last }[event.key];
    if (event.key === "Enter") this.open(id);
    else if (to === undefined) return;
    else this.focus(this.#order[Math.max(0, Math.min(last, to))]);
    event.preventDefault();
  }

  #focused(event) {
    const id = event.target.dataset?.line;
    if (id) this.#activate(id);
  }

  /** Exactly one row is in the tab order. */
  #activate(id) {
    this.#rows.get(this.#active)?.root.setAttribute("tabindex", "-1");
    this.#active = id;
    this.#rows.get(id)?.root.setAttribute("tabindex", "0");
  }
}

/** Lines by one key; ties, and only ties, by name upwards. */
function ordered(lines, { key, down }) {
  const { value } = COLUMNS.find((column) => column.key === key);
  const sign = down ? -1 : 1;
  const byName = (one, other) => (one.line < other.line ? -1 : one.line > other.line ? 1 : 0);
  if (key === "line") return lines.sort((one, other) => sign * byName(one, other));
  return lines.sort((one, other) => sign * (value(one) - value(other)) || byName(one, other));
}
