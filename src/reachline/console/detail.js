// One line's page: what it is, how it stands, who says so with which counts, what was decided, what comes next.

import { Charts, charts } from "./chart.js";
import { decisionList, gathered } from "./decisions.js";
import { fill, h, mark, say } from "./dom.js";
import { ago, clock, duration, latency, metricWords, percent, reasonWords, UNKNOWN, voteWords } from "./format.js";
import { chipText, nextWords, stateOf, STATES } from "./states.js";

/** Asked again this often while the page is open: readings are per vantage and too many for the live stream. */
const EVERY = 2000;

export class Detail {
  #section;
  #store;
  #feed;
  #id = null;
  #timer = 0;
  #parts = null;
  #charts = null;
  #page = null;
  #explained = 0;

  constructor(section, store, feed) {
    this.#section = section;
    this.#store = store;
    this.#feed = feed;
  }

  /** The line shown, or null. */
  get id() {
    return this.#id;
  }

  async open(id) {
    this.close();
    this.#id = id;
    this.#parts = this.#build(id);
    this.#section.hidden = false;
    this.#parts.title.focus();
    this.tick();
    this.#refresh();
    const uPlot = await charts();
    if (this.#id !== id || this.#charts) return;
    if (!uPlot) return fill(this.#parts.charts, h("p", { class: "note" }, "No charts: their library was not fetched at set-up. Every figure below is complete without it."));
    this.#charts = new Charts(uPlot, this.#parts.charts);
    this.#draw();
  }

  close() {
    clearTimeout(this.#timer);
    this.#charts?.close();
    this.#charts = this.#parts = this.#page = this.#id = null;
    this.#explained = 0;
    this.#section.hidden = true;
    this.#section.replaceChildren();
  }

  /** The theme changed. */
  restyle() {
    this.#draw();
  }

  /** The live row changed, or a second went by. */
  tick() {
    const parts = this.#parts;
    if (!parts) return;
    const line = this.#store.lines.get(this.#id) ?? this.#page;
    if (!line) return say(parts.next, "");
    const now = this.#feed.now;
    const state = stateOf(line);
    mark(parts.chip, "data-state", state);
    say(parts.sign, STATES[state].sign);
    say(parts.word, chipText(line));
    say(parts.means, `${STATES[state].means}${line.reason ? ` · ${reasonWords(line.reason)}` : ""} · for ${duration(now - line.since)}`);
    const next = nextWords(line, now, duration);
    say(parts.next, next ? `Next: ${next} (${clock(line.next)})` : "Next: nothing is planned; the line is judged again with every tick.");
    const figures = {
      weight: `${line.weight} of ${line.base}`, score: String(line.score), p50: latency(line.p50), p95: latency(line.p95),
      ewma: latency(line.ewma), jitter: latency(line.jitter), loss: percent(line.loss), timeout: percent(line.timeout),
    };
    for (const [name, text] of Object.entries(figures)) say(parts.figures[name], text);
  }

  #build(id) {
    const [cluster, ...rest] = id.split("/");
    const title = h("h1", { tabindex: -1 }, h("span", { class: "cluster" }, `${cluster}/`), rest.join("/"));
    const sign = h("span", { class: "sign", "aria-hidden": "true" });
    const word = h("span");
    const chip = h("span", { class: "chip large" }, sign, word);
    const means = h("p", { class: "means" });
    const next = h("p", { class: "planned" });
    const facts = h("dl", { class: "facts" });
    const figures = {};
    const tiles = [["weight", "Weight"], ["score", "Score"], ["p50", "P50"], ["p95", "P95"], ["ewma", "EWMA"], ["jitter", "Jitter"], ["loss", "Packet loss"], ["timeout", "Timeouts"]]
      .map(([name, label]) => h("div", {}, h("dt", {}, label), (figures[name] = h("dd", {}, UNKNOWN))));
    const place = (name, heading) => {
      const body = h("div", { class: "body" }, h("p", { class: "note" }, "…"));
      return { body, box: h("section", { class: `panel ${name}`, "aria-label": heading }, h("h2", {}, heading), body) };
    };
    const votes = place("votes", "Votes now");
    const decisions = place("decisions", "Decisions");
    const explain = place("explain", "Why");
    const chartBox = h("div", { class: "charts", role: "region", "aria-label": "Charts" });
    fill(this.#section, h("nav", {}, h("a", { href: "#/", class: "back" }, "← All lines")),
      h("div", { class: "head-line" }, title, chip), means, next, h("dl", { class: "tiles" }, ...tiles), facts,
      chartBox, h("div", { class: "panels" }, explain.box, decisions.box, votes.box));
    return { title, chip, sign, word, means, next, figures, facts, charts: chartBox, votes: votes.body, decisions: decisions.body, explain: explain.body };
  }

  async #refresh() {
    const id = this.#id;
    if (!document.hidden) await this.#ask(id);
    if (this.#id === id && id !== null) this.#timer = setTimeout(() => this.#refresh(), EVERY);
  }

  async #ask(id) {
    const page = await fetched(`/api/v1/lines/${escaped(id)}`);
    if (this.#id !== id || !page) return;
    if (page.error) return fill(this.#parts.explain, h("p", { class: "note" }, page.error.message ?? "The center does not know this line."));
    this.#page = page;
    this.#store.learn(page.changes ?? []);
    this.#draw();
    this.tick();
    await this.#explain(id, page);
  }

  /** Ask for the explanation when there is a new decision, and every few rounds for its deadlines. */
  async #explain(id, page) {
    const newest = page.changes?.at(-1)?.id ?? 0;
    if (this.#explained === newest && this.#rounds++ % 3) return;
    const told = await fetched(`/api/v1/explain/${escaped(id)}`);
    if (this.#id !== id || !told) return;
    this.#explained = newest;
    fill(this.#parts.explain, told.error ? h("p", { class: "note" }, told.error.message) : h("pre", {}, told.text ?? JSON.stringify(told, null, 2)));
  }

  #rounds = 0;

  #draw() {
    const page = this.#page;
    if (!page || !this.#parts) return;
    this.#facts(page);
    fill(this.#parts.votes, voteTable(page));
    const decisions = gathered(page.changes ?? []);
    fill(this.#parts.decisions, decisionList(decisions, this.#feed.now));
    this.#charts?.update(page.history ?? [], decisions.map((one) => ({ at: one.first.at, label: String(one.number) })));
  }

  #facts(page) {
    const facts = [["Address", page.address], ["Via", page.via], ["Origin", page.origin], ["Role", page.role], ["Provider", page.provider], ["Groups", (page.groups ?? []).join(", ")]];
    fill(this.#parts.facts, ...facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }
}

/** The API's JSON, also of a refusal; null when the center did not answer. */
async function fetched(path) {
  try {
    const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(EVERY * 2) });
    return await answer.json();
  } catch (_away) {
    return null; // the page's header tells how old everything is
  }
}

/** A line id as a path: the slash between cluster and line stays. */
function escaped(id) {
  return id.split("/").map(encodeURIComponent).join("/");
}

const ZONES = { healthy: ["●", "healthy"], degraded: ["▲", "degraded"], failed: ["✕", "failed"], none: ["○", "no verdict"] };

/** Who votes what, by which count; one row a vantage, its readings by kind below. */
function voteTable(page) {
  const votes = page.votes ?? [];
  if (!votes.length && !(page.readings ?? []).length) return h("p", { class: "note" }, "No vantage has reported yet.");
  const rows = votes.map((vote) => {
    const [sign, word] = ZONES[vote.zone] ?? ["○", vote.zone];
    const said = vote.zone === "none" ? "not enough samples" : vote.metric ? `${metricWords(vote.metric)}: ${voteWords(vote)}` : "";
    return h("tr", { "data-state": vote.zone }, h("th", { scope: "row" }, vote.vantage), h("td", {}, h("span", { class: "sign", "aria-hidden": "true" }, sign), " ", word), h("td", {}, said));
  });
  const head = h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Vantage"), h("th", { scope: "col" }, "Vote"), h("th", { scope: "col" }, "Deciding count")));
  return h("div", {}, h("table", {}, head, h("tbody", {}, ...rows)), readingTable(page.readings ?? []));
}

function readingTable(readings) {
  if (!readings.length) return h("p", { class: "note" }, "");
  const titles = ["Vantage", "Probe", "Attempts", "Not ok", "Packets lost", "P50", "P95", "Heard"];
  const rows = readings.map((one) => h("tr", {}, h("th", { scope: "row" }, one.vantage), h("td", {}, one.kind.toUpperCase() + (one.void ? " (void)" : "")),
    ...[String(one.attempts), failures(one), one.sent ? `${one.lost} of ${one.sent}` : UNKNOWN, latency(one.p50), latency(one.p95), ago(one.age)].map((text) => h("td", {}, text))));
  return h("div", { class: "wide" }, h("table", { class: "readings" }, h("caption", {}, "What each vantage measured in its window"),
    h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, ...rows)));
}

/** "7 of 50 (5 late, 2 reset)": every failure with its kind. */
function failures(reading) {
  const kinds = Object.entries(reading.failures ?? {}).filter(([, count]) => count);
  const total = kinds.reduce((sum, [, count]) => sum + count, 0);
  return total ? `${total} (${kinds.map(([kind, count]) => `${count} ${kind}`).join(", ")})` : "0";
}
