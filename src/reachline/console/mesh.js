// The ways between agents, as a matrix while they are few: row to column. A center without any answers with none, and nothing is shown.

import { fill, h } from "./dom.js";
import { duration, latency, percent } from "./format.js";

/** Intervals of the mesh are five seconds long: nothing is newer. */
const EVERY = 5000;
/** More columns than these push the table off a screen; then only ways with something to say are listed. */
const COLUMNS = 12;
const LISTED = 20;

/** Ask `/api/v1/mesh` while the page is visible; a center that knows no mesh answers 404 once, and that is all. */
export function mesh(section) {
  let drawn = "";
  let isOver = false;
  let isLarge = false;
  const ask = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(isLarge ? "/api/v1/mesh?trouble=1" : "/api/v1/mesh", { cache: "no-store", signal: AbortSignal.timeout(EVERY) });
        isOver = answer.status === 404;
        if (answer.ok) {
          const found = await answer.json();
          isLarge = found.agents.length > COLUMNS;
          drawn = draw(section, found, drawn);
        }
      } catch (_away) {
        isOver = false; // the center is away: the page itself says so, and we ask again
      }
    }
    if (isOver) section.hidden = true;
    else setTimeout(ask, EVERY);
  };
  ask();
}

/** Draws what differs from what is drawn; what is drawn now. */
function draw(section, { agents, ways }, drawn) {
  const isLarge = agents.length > COLUMNS;
  section.hidden = ways.length === 0 && !(isLarge && agents.some((agent) => agent.address));
  const names = agents.map((agent) => agent.agent).filter((name) => isLarge || ways.some((way) => way.vantage === name));
  const cells = new Map(ways.map((way) => [`${way.vantage}\n${way.peer}`, told(way)]));
  const next = JSON.stringify([names, [...cells]]);
  if (next === drawn || section.hidden) return next;
  const title = h("h2", {}, "Between agents ", h("span", { class: "count" }, isLarge ? `${names.length} agents` : "row to column, round trip"));
  fill(section, title, isLarge ? list(ways.map(told)) : matrix(names, cells));
  return next;
}

function matrix(names, cells) {
  const head = h("tr", {}, h("td"), ...names.map((name) => h("th", { scope: "col" }, name)));
  const rows = names.map((from) => h("tr", {}, h("th", { scope: "row" }, from), ...names.map((to) => cell(cells.get(`${from}\n${to}`)))));
  return h("div", { class: "wide" }, h("table", { "aria-label": "Ways between agents" }, h("thead", {}, head), h("tbody", {}, ...rows)));
}

function cell(found) {
  if (!found) return h("td", { class: "none" }, "·");
  return h("td", { "data-state": found.state, title: found.words }, found.sign ? h("span", { class: "sign", "aria-hidden": "true" }, found.sign) : null, found.text);
}

function list(all) {
  const bad = all.filter((found) => found.state !== "healthy");
  const items = bad.slice(0, LISTED).map((found) => h("li", { "data-state": found.state }, h("span", { class: "sign", "aria-hidden": "true" }, found.sign), found.words));
  if (bad.length > LISTED) items.push(h("li", {}, `and ${bad.length - LISTED} more`));
  return items.length ? h("ul", {}, ...items) : h("p", { class: "calm" }, "every way is heard, and none at fault");
}

/** One way in a word for its cell, and in a sentence for who points at it. Loss and delay are told of this direction only. */
function told(way) {
  const name = `${way.vantage} → ${way.peer}`;
  const loses = ["forward", "both"].includes(way.losing);
  const slow = ["forward", "both"].includes(way.delayed);
  if (way.state === "stale") return { state: "unknown", sign: "◌ ", text: "stale", words: `${name}: ${way.told_by} last spoke of it ${duration(way.age)} ago` };
  if (way.state === "silent") {
    const since = way.silent === null ? "never answered" : `no answer for ${duration(way.silent)}`;
    return { state: "open", sign: "✕ ", text: loses ? "dead" : "silent", words: `${name}: ${way.error || since}${loses ? "; nothing gets through this way" : ""}` };
  }
  const figures = `round trip ${latency(way.rtt)}, ${percent(way.loss)} lost of ${way.sent} on the way, ${percent(way.loss_back)} of ${way.sent_back} on the way back`;
  if (loses) return { state: "degraded", sign: "▲ ", text: `${percent(way.loss)} lost`, words: `${name} loses: ${figures}` };
  if (slow) return { state: "degraded", sign: "▲ ", text: `+${latency(way.rise)}`, words: `${name} is slower than usual by ${latency(way.rise)}: ${figures}` };
  return { state: "healthy", sign: "", text: latency(way.rtt), words: `${name}: ${figures}` };
}
