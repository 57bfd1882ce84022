// Who follows the center by xDS, in a line while all is well, and what is refused with its reason. Without anybody nothing is shown.

import { fill, h } from "./dom.js";
import { duration } from "./format.js";

/** A client that refuses does so within milliseconds of a change; people read slower. */
const EVERY = 5000;
const LISTED = 20;
const SHORT = { Cluster: "CDS", ClusterLoadAssignment: "EDS", Listener: "LDS", RouteConfiguration: "RDS" };
const CLIENTS = { envoy: "Envoy", grpc: "gRPC", own: "Reachline" };

/** Ask `/api/v1/xds` while the page is visible; a center that does not know it answers 404 once, and that is all. */
export function followers(section) {
  let drawn = "";
  let isOver = false;
  const ask = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch("/api/v1/xds", { cache: "no-store", signal: AbortSignal.timeout(EVERY) });
        isOver = answer.status === 404;
        if (answer.ok) drawn = draw(section, await answer.json(), drawn);
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
function draw(section, found, drawn) {
  const fault = found.served && found.reason ? [`nothing newer is told: ${found.reason}`] : [];
  const all = [...fault, ...found.streams.flatMap(troubles)];
  section.hidden = found.streams_total === 0 && fault.length === 0;
  const next = JSON.stringify([found.streams_total, found.audiences.map((each) => [each.kind, each.streams]), all, found.settled]);
  if (next === drawn || section.hidden) return next;
  const title = h("h2", {}, "Who follows ", h("span", { class: "count" }, counted(found.audiences)));
  const items = all.slice(0, LISTED).map((text) => h("li", { "data-state": "degraded" }, h("span", { class: "sign", "aria-hidden": "true" }, "▲ "), text));
  if (all.length > LISTED) items.push(h("li", {}, `and ${all.length - LISTED} more`));
  const calm = found.settled ? "nobody refuses anything" : "who was told more by a center before this one waits until lines are judged";
  fill(section, title, items.length ? h("ul", {}, ...items) : h("p", { class: "calm" }, calm));
  return next;
}

/** "3 Envoy, 1 gRPC". */
function counted(audiences) {
  const kinds = new Map();
  for (const { kind, streams } of audiences) kinds.set(kind, (kinds.get(kind) ?? 0) + streams);
  return [...kinds].map(([kind, streams]) => `${streams} ${CLIENTS[kind] ?? kind}`).join(", ");
}

/** What is wrong with one stream, a sentence each. */
function troubles(stream) {
  const who = stream.node || stream.peer;
  const told = stream.types.flatMap((each) => {
    const name = SHORT[each.type] ?? each.type;
    const refused = Object.entries(each.refused);
    if (refused.length) return refused.map(([resource, reason]) => `${who} refuses ${name} ${resource}: ${reason}`);
    return each.error ? [`${who} refuses ${name}: ${each.error}`] : [];
  });
  const isMute = stream.heard > 5 && stream.types.some((each) => each.waiting);
  return isMute ? [...told, `${who} takes nothing for ${duration(stream.heard)}`] : told;
}
