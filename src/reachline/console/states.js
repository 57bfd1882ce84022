// What a line's standing is called and how it is drawn. Never by colour alone: each state has its own sign and word.

/** kind -> sign, word, and what it means to a newcomer. `kind` is also the CSS hook. */
export const STATES = {
  healthy: { sign: "●", word: "healthy", means: "good; carries its full share" },
  degraded: { sign: "▲", word: "degraded", means: "works, but badly; its weight falls with each bad judgement" },
  open: { sign: "✕", word: "open", means: "taken out; carries nothing until its cooldown is over" },
  trial: { sign: "◔", word: "trial", means: "half-open: a small share of real calls tests it" },
  ramp: { sign: "◢", word: "ramp", means: "the trial passed; its share rises step by step" },
  unhealthy: { sign: "▼", word: "unhealthy", means: "judged failed, but held: the last line that may carry traffic" },
  draining: { sign: "‖", word: "drained", means: "taken out by hand" },
  blind: { sign: "◌", word: "blind", means: "no vantage sees it now; the last standing is held" },
  unknown: { sign: "○", word: "unknown", means: "not enough samples yet" },
};

/** Order of trouble, worst first: for sorting and for the list of incidents. */
const SEVERITY = ["open", "unhealthy", "trial", "ramp", "degraded", "blind", "draining", "unknown", "healthy"];

/** The state shown for a line: what the breaker does comes before what the judge thinks. */
export function stateOf(line) {
  if (line.drained) return "draining";
  if (line.breaker === "open") return "open";
  if (line.breaker === "half_open") return "trial";
  if (line.breaker === "ramp") return "ramp";
  if (line.blind) return "blind";
  return line.health in STATES ? line.health : "unknown";
}

/** 0 is the worst. */
export function severity(line) {
  return SEVERITY.indexOf(stateOf(line));
}

/** The word on the chip, with the share while it is a trial or a ramp. */
export function chipText(line) {
  const state = stateOf(line);
  const word = STATES[state].word;
  if (state !== "trial" && state !== "ramp") return word;
  return `${word} ${share(line)}`;
}

/** Published weight as a share of the base, in whole percent. */
export function share(line) {
  return line.base ? `${Math.round((100 * line.weight) / line.base)} %` : "";
}

/** What happens next by itself, in words; null when nothing is planned. `now` and `line.next` are Unix seconds. */
export function nextWords(line, now, duration) {
  if (line.next === null || line.next === undefined) return null;
  const left = line.next - now;
  const when = left > 0.5 ? `in ${duration(left)}` : "now, as soon as the probes agree";
  if (line.breaker === "open") return `a half-open trial may begin ${when}`;
  if (line.breaker === "half_open") return left > 0.5 ? `the trial may pass ${when}` : "the trial passes with its next successes";
  if (line.breaker === "ramp") return left > 0.5 ? `the next step up ${when}` : "the next step up comes with its next successes";
  return `a planned step ${when}`;
}
