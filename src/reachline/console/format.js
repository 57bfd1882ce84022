// Numbers as people read them. Pure; what is not known is an en dash, never 0.

export const UNKNOWN = "–";

/** Seconds as milliseconds with three significant digits at most: 0.0123 -> "12.3 ms". */
export function latency(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  const ms = seconds * 1000;
  if (ms === 0) return "0 ms";
  if (ms >= 9999.5) return `${(seconds).toFixed(1)} s`;
  return `${ms >= 99.95 ? ms.toFixed(0) : ms >= 9.995 ? ms.toFixed(1) : ms.toFixed(2)} ms`;
}

/** A ratio as a percentage: 0.0123 -> "1.2 %"; only a true 0 is "0 %". */
export function percent(ratio) {
  if (ratio === null || ratio === undefined) return UNKNOWN;
  const value = ratio * 100;
  if (value === 0 || value >= 9.95) return `${value.toFixed(0)} %`;
  return value < 0.1 ? "<0.1 %" : `${value.toFixed(1)} %`;
}

/** A duration in the largest unit that keeps it readable: 75 -> "1 min 15 s". */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** How long ago, coarse: for columns that are read in passing. */
export function ago(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/** Wall-clock time of a Unix second, for lists. */
export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString([], { hour12: false });
}

const METRICS = {
  loss: "packet loss", timeout: "timeouts", p95: "P95 latency", ewma: "average latency", jitter: "jitter",
  errors: "errors and resets", connect: "no attempt gets through",
  resolve: "the name does not resolve",
};

/** A metric's name in words; its probe kind in front: "http.timeout" -> "HTTP timeouts". */
export function metricWords(metric) {
  const [name, kind] = metric.split(".").reverse();
  const words = METRICS[name] ?? name;
  return kind ? `${kind.toUpperCase()} ${words}` : words;
}

/** A number of a vote in the unit of its metric; latencies travel in microseconds, rates as counts. */
export function voteWords(vote) {
  const name = vote.metric.split(".").at(-1);
  if (["p95", "ewma", "jitter"].includes(name)) {
    // 2**31 - 1 microseconds stand for "never answered".
    const value = vote.numerator >= 2 ** 31 - 1 ? "no answer" : latency(vote.numerator / 1e6);
    return `${value} over ${vote.denominator} answers${limit(vote, latency(vote.limit / 1e6))}`;
  }
  if (name === "connect" || name === "resolve") return `${vote.numerator} of ${vote.denominator} rounds got through`;
  const share = vote.denominator ? ` = ${percent(vote.numerator / vote.denominator)}` : "";
  return `${vote.numerator} of ${vote.denominator}${share}${limit(vote, percent(vote.limit / 1000))}`;
}

/** The limit a vote was held against; a healthy one is within all of them. */
function limit(vote, words) {
  return vote.limit && vote.zone !== "healthy" ? ` (limit ${words})` : "";
}

const RULES = {
  "breaker.cooldown_over": "cooldown over: trial begins",
  "breaker.window_passed": "enough good calls: next step up",
  "breaker.window_passed.closed": "enough good calls: back to full weight",
  "breaker.window_starved": "few calls, all good: next step up",
  "breaker.window_starved.closed": "few calls, all good: back to full weight",
  "breaker.trial_failed": "calls failed in the trial: opened again, for longer",
  "breaker.forgiven": "quiet for long: earlier failures forgiven",
  "judge.recovered": "good judgements in a row: healthy",
  "guard.last_line": "judged failed, but the last closed line: held",
  "guard.blast": "judged failed, but too much is open already: held",
  "guard.panic": "most of the weight is lost: what works at all carries",
  "capacity.poured": "another line is full: its traffic went on",
  "group.incident": "lines of one shared-risk group turned bad together",
  "group.over": "the shared-risk group's incident is over here",
  "breaker.early_trial": "well again early: first trial",
  "guard.fail_open": "every line is open: the least bad one carries all",
  "quorum.blind": "no vantage reports on it: held, not judged",
  "quorum.seen": "vantages report on it again",
  "faults.grew": "more bad judgements: less weight",
  "faults.faded": "good judgements: weight returns",
  "faults.fading": "healthy again: weight returns",
  "operator.drain": "drained by an operator",
};

/** A rule id in words where it is known; the id itself otherwise. */
export function reasonWords(rule) {
  if (!rule) return "";
  if (RULES[rule]) return RULES[rule];
  const [, metric, zone] = /^vote\.(.+)\.(degraded|failed)$/.exec(rule) ?? [];
  if (!metric) return rule;
  return `${metricWords(metric)}: most vantages call it ${zone}`;
}
