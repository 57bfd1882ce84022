// A line's decisions as a list: each with its rule and counts, a slow slide of the weight as one entry.

import { h } from "./dom.js";
import { ago, clock, reasonWords, voteWords } from "./format.js";
import { stateOf, STATES } from "./states.js";

/** Entries listed; the rest is one command away. */
const SHOWN = 30;

/**
 * Decisions, numbered, oldest first. Steps of one slide (the same fault rule again and again) are one entry: a weight that falls
 * every other second would bury what a person looks for.
 */
export function gathered(changes) {
  const entries = [];
  for (const change of changes) {
    const newest = entries.at(-1);
    if (newest && change.rule.startsWith("faults.") && newest.last.rule === change.rule) {
      newest.last = change;
      newest.steps += 1;
    } else entries.push({ first: change, last: change, steps: 1, number: entries.length + 1 });
  }
  return entries;
}

/** The newest entries on top. `now` is the center's Unix time. */
export function decisionList(entries, now) {
  if (!entries.length) return h("p", { class: "note" }, "None yet: the line stands as it started.");
  return h("ol", {}, ...entries.slice(-SHOWN).reverse().map((entry) => item(entry, now)));
}

function item({ first, last, steps, number }, now) {
  const state = stateOf(last.after);
  const time = steps > 1 ? `${clock(first.at)} … ${clock(last.at)}` : clock(last.at);
  return h("li", { "data-state": state },
    h("span", { class: "number" }, String(number)),
    h("span", { class: "sign", "aria-hidden": "true" }, STATES[state].sign),
    h("div", {}, h("p", { class: "what" }, `${stateWords(first, last)}, ${weightWords(first, last, steps)}`), h("p", { class: "rule" }, reasonWords(last.rule)), counts(last)),
    h("time", { title: ago(now - last.at) }, time));
}

function stateWords(first, last) {
  const [before, after] = [STATES[stateOf(first.before)].word, STATES[stateOf(last.after)].word];
  return before === after ? after : `${before} → ${after}`;
}

function weightWords(first, last, steps) {
  const [before, after] = [first.before.weight, last.after.weight];
  if (before === after) return `weight ${after}`;
  return `weight ${before} → ${after}${steps > 1 ? ` in ${steps} steps` : ""}`;
}

/** The votes behind a decision on one line, where they say something. */
function counts(change) {
  const telling = (change.votes ?? []).filter((vote) => vote.zone === "degraded" || vote.zone === "failed");
  if (!telling.length) return null;
  return h("p", { class: "counts" }, telling.map((vote) => `${vote.vantage}: ${voteWords(vote)}`).join("; "));
}
