// All the page knows of the lines: one writer (the feed), read by every view. Holds values only, draws nothing.

/** Points of one sparkline. */
export const POINTS = 60;
/** Decisions kept for the whole page; a line's own page asks the center for more. */
const CHANGES = 500;

export class Store {
  constructor() {
    /** @type {Map<string, object>} line id -> LINE */
    this.lines = new Map();
    /** @type {Map<string, Array<[number|null, number|null]>>} line id -> newest points, [p95, loss] */
    this.sparks = new Map();
    /** @type {Map<string, object>} line id -> its newest decision */
    this.lastChange = new Map();
    /** @type {object[]} newest last */
    this.changes = [];
    /** @type {object[]} every agent the center knows or expects */
    this.agents = [];
    /** @type {Record<string, string>} cluster -> why its ordinary rules are suspended */
    this.panic = {};
    this.version = "";
    this.revision = -1;
  }

  /** Replace everything. */
  snapshot(message) {
    this.lines = new Map(message.lines.map((line) => [line.line, line]));
    for (const line of message.lines) {
      if (line.spark) this.sparks.set(line.line, line.spark.slice(-POINTS).map(([p95, loss, timeout]) => [p95, worst(loss, timeout)]));
      delete line.spark;
    }
    for (const id of this.sparks.keys()) if (!this.lines.has(id)) this.sparks.delete(id);
    this.learn(message.changes ?? []);
    this.#arrived(message);
  }

  /** Apply one delta; the ids that changed, and whether lines came or went. */
  delta(message) {
    let reshaped = false;
    for (const line of message.lines) {
      reshaped ||= !this.lines.has(line.line);
      delete line.spark;
      this.lines.set(line.line, line);
    }
    for (const id of message.gone ?? []) {
      reshaped = this.lines.delete(id) || reshaped;
      this.sparks.delete(id);
    }
    this.learn(message.changes ?? []);
    this.#arrived(message);
    return { changed: message.lines.map((line) => line.line), reshaped };
  }

  /** Take decisions, in the order they were made; ones already known are skipped. */
  learn(changes) {
    for (const change of changes) {
      const known = this.lastChange.get(change.line);
      if (known && known.id >= change.id) continue;
      this.lastChange.set(change.line, change);
      this.changes.push(change);
    }
    if (this.changes.length > CHANGES) this.changes.splice(0, this.changes.length - CHANGES);
  }

  /** One more point for every sparkline. */
  sample() {
    for (const [id, line] of this.lines) {
      let points = this.sparks.get(id);
      if (!points) this.sparks.set(id, (points = []));
      points.push([line.p95, lossOf(line)]);
      if (points.length > POINTS) points.shift();
    }
  }

  #arrived(message) {
    this.agents = message.agents ?? this.agents;
    this.panic = message.panic ?? {};
    this.version = message.version;
    this.revision = message.revision;
  }
}

/** What a person means by loss: packets lost, or requests never answered, whichever is worse. */
export function lossOf(line) {
  return worst(line.loss, line.timeout);
}

function worst(loss, timeout) {
  if (loss === null || loss === undefined) return timeout ?? null;
  return Math.max(loss, timeout ?? 0);
}
