// Events in words, and those from before the page was opened.

import type { NetworkEvent } from "./documents/network";
import { portParts } from "./documents/network";
import { keep, switchName } from "./network";
import type { Tone } from "./parts/state";
import { WAIT_MS, send } from "./request";

/** Events before the one asked for that are read. */
const BEFORE = 500;

const BAD = new Set(["switch_down", "switch_lost", "link_down", "port_down", "alarm"]);
const GOOD = new Set(["switch_up", "link_up", "port_up", "topology_agrees"]);
const WARN = /refused|differs|moved|mended|left_out|reset|cut|restart_needed|drain/;

export function eventTone({ event }: NetworkEvent): Tone {
  if (BAD.has(event)) return "bad";
  if (GOOD.has(event)) return "good";
  return WARN.test(event) ? "warn" : "info";
}

type Fields = Record<string, unknown>;

/** A port as people name it: the switch by its name. */
function place(port: unknown): string {
  const { dpid, number } = portParts(String(port));
  return number === "" ? switchName(dpid) : `${switchName(dpid)} port ${number}`;
}

const TEXTS: Record<string, (of: Fields) => string> = {
  link_up: ({ from, to }) => `${place(from)} reaches ${place(to)}`,
  link_down: ({ from, to }) => `${place(from)} no longer reaches ${place(to)}`,
  switch_up: ({ dpid, version, address }) =>
    `${place(dpid)} by OpenFlow ${version} from ${address}`,
  switch_down: ({ dpid, reason, detail }) =>
    `${place(dpid)}: ${[reason, detail].filter((t) => t).join(", ")}`,
  host_learned: ({ mac, port }) => `${mac} at ${place(port)}`,
  host_moved: ({ mac, from, to }) => `${mac} from ${place(from)} to ${place(to)}`,
  address_moved: ({ ip, from, to }) => `${ip} from host ${from} to host ${to}`,
  port_up: ({ port }) => place(port),
  port_down: ({ port }) => place(port),
  alarm: ({ detail }) => String(detail),
  topology_differs: ({ detail }) => String(detail),
  flow_mended: ({ dpid, owner, name }) =>
    `${owner}/${name} is set again: somebody else has changed ${place(dpid)}`,
  flow_ended: ({ dpid, owner, name }) => `${owner}/${name} of ${place(dpid)} has ended`,
};

/** One line; fields of kinds that have no sentence follow each other. */
export function eventText(event: NetworkEvent): string {
  const words = TEXTS[event.event];
  if (words) return words(event);
  const { seq: _, event: __, time_s: ___, ...fields } = event;
  return Object.entries(fields)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
}

/** Reads what came before a number, as far as the controller has it. */
export async function earlier(seq: number): Promise<void> {
  let read = await lines(seq - BEFORE);
  const reset = read.find(({ event }) => event === "reset");
  const first = reset?.["first"];
  if (typeof first === "number") read = await lines(Math.max(first - 1, 0));
  keep(read.filter(({ event }) => event !== "reset" && event !== "cut"));
}

async function lines(since: number): Promise<NetworkEvent[]> {
  try {
    const bound = AbortSignal.timeout(WAIT_MS);
    const response = await send(`/v1/events?since=${since}`, "application/x-ndjson", bound);
    const text = await response.text();
    return text
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line));
  } catch {
    return [];
  }
}
