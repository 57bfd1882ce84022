// The page's one WebSocket: snapshot, deltas by revision, a tick each second. Comes back by itself and knows its age.

const FIRST_WAIT = 400;
/** The center is on the same network: five seconds keep a returning page prompt and a dead center unbothered. */
const LONGEST_WAIT = 4000;
/** Ticks come each second; two missed ones are silence. With the second the page checks in: well below the 5 s in which
 *  a viewer must know. */
const SILENT_AFTER = 3000;
/** A socket that is closed and not back this soon is no mere hiccup. */
const LOST_AFTER = 1500;
/** A socket this long without a word is replaced. */
const GIVE_UP_AFTER = 6000;

export class Feed {
  #url;
  #on;
  #socket = null;
  #wait = FIRST_WAIT;
  #timer = 0;
  #revision = -1;
  #begunAt = -Infinity;
  #heardAt = -Infinity;
  #serverNow = null;

  /** @param {{snapshot: Function, delta: Function, tick: Function}} on */
  constructor(url, on) {
    this.#url = url;
    this.#on = on;
    addEventListener("online", () => this.connect());
    document.addEventListener("visibilitychange", () => document.hidden || this.#connected() || this.connect());
    setInterval(() => this.#watch(), 1000);
  }

  /** Milliseconds since the center was last heard; Infinity before the first word. */
  get age() {
    return performance.now() - this.#heardAt;
  }

  /** The center's Unix time now, carried on by our own clock; ours before its first word. */
  get now() {
    return this.#serverNow === null ? Date.now() / 1000 : this.#serverNow + this.age / 1000;
  }

  /** True when what is shown may no longer be so. */
  get stale() {
    return this.age > (this.#connected() ? SILENT_AFTER : LOST_AFTER);
  }

  /** Drop what is there and connect now. */
  connect() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#drop();
    this.#begunAt = performance.now();
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    socket.onmessage = (event) => socket === this.#socket && this.#hear(JSON.parse(event.data));
    socket.onclose = () => socket === this.#socket && this.#lost();
  }

  #connected() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  #hear(message) {
    this.#heardAt = performance.now();
    this.#serverNow = message.now;
    if (message.type === "snapshot") {
      this.#wait = FIRST_WAIT;
      this.#revision = message.revision;
      this.#on.snapshot(message);
    } else if (message.type === "delta") {
      // A delta that does not follow on what we hold was preceded by one that we never got: begin again.
      if (message.after !== this.#revision) return this.connect();
      this.#revision = message.revision;
      this.#on.delta(message);
    } else if (message.type === "tick") this.#on.tick(message);
  }

  #lost() {
    this.#socket = null;
    if (this.#timer) return;
    this.#timer = setTimeout(() => this.connect(), this.#wait * (0.75 + Math.random() / 2));
    this.#wait = Math.min(LONGEST_WAIT, this.#wait * 1.6);
  }

  /** A socket that is open but silent, or hangs in its handshake, is given up. */
  #watch() {
    if (this.#socket && performance.now() - Math.max(this.#heardAt, this.#begunAt) > GIVE_UP_AFTER) this.connect();
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }
}
