// What the page knows of the network: one document, the events since, and live figures. The
// document is read again after an event that changes it.

import { Cell } from "./cell";
import type { Link, NetworkEvent, Topology } from "./documents/network";
import { linkKey } from "./documents/network";
import { readSaved, saved } from "./map/saved";
import { type Problem, read } from "./request";
import { type Who, refusal, user } from "./session";
import { Stream, withheld } from "./stream";
import { shortDatapath } from "./units";

/** Events that the page keeps. */
const EVENTS_MAX = 2000;
/** Links that the page remembers after they are gone. */
const LOST_MAX = 256;
/** The least time between two readings, and how long one waits for further events. */
const READ_EVERY_MS = 300;
const GATHER_MS = 60;
/** The time between questions whether the controller is there, and how often all is read anyway. */
const ASK_EVERY_MS = 5000;
const REREAD_EVERY_MS = 30_000;

/** Events have numbers from a process's start, so those of two processes are further apart. */
const PROCESS_EVENTS = 2 ** 20;

/** Kinds of event after which the document is what it was. */
const HARMLESS = new Set([
  "refused",
  "certificate",
  "listening",
  "serving",
  "left_out",
  "intent_layout",
]);

export interface Network {
  readonly topology?: Topology;
  readonly problem?: Problem;
  /** Links that were there, by name, and when they were last seen. */
  readonly lost: ReadonlyMap<string, { link: Link; at: number }>;
}

export const network = new Cell<Network>({ lost: new Map() });
export const events = new Cell<readonly NetworkEvent[]>([]);
/** Since when the page shows what may no longer be true; null while it is up to date. */
export const staleSince = new Cell<number | null>(null);

let seq = 0;
let isReading = false;
let isDue = false;
let lastReadAt = 0;
let tookMs = 0;
let stream: Stream | undefined;

export function begin(): void {
  void reread();
  refusal.follow(() => (refusal.get() === null ? void reread() : suspend()));
  setInterval(ask, ASK_EVERY_MS);
}

/** Nothing of the network stays in the page while nobody has signed in. */
function suspend(): void {
  stream?.end();
  stream = undefined;
  lastReadAt = 0;
  setStale(false);
  network.set({ lost: new Map() });
  events.set([]);
  saved.set(null);
}

async function ask(): Promise<void> {
  if (document.hidden || refusal.get() !== null) return;
  const isStale = staleSince.get() !== null || withheld.get() !== null;
  if (isStale || Date.now() - lastReadAt > REREAD_EVERY_MS) return reread();
  try {
    await read("/healthz", AbortSignal.timeout(ASK_EVERY_MS - 500));
  } catch {
    setStale(true);
  }
}

function setStale(isStale: boolean): void {
  if (!isStale) staleSince.set(null);
  else if (staleSince.get() === null) staleSince.set(Date.now());
}

/** Reads soon, and not more often than the network can stand. */
function reread(): Promise<void> {
  if (isReading) {
    isDue = true;
    return Promise.resolve();
  }
  isReading = true;
  isDue = false;
  const least = Math.max(READ_EVERY_MS, 4 * tookMs);
  const wait = Math.max(lastReadAt === 0 ? 0 : GATHER_MS, lastReadAt + least - Date.now());
  return new Promise((done) => {
    setTimeout(async () => {
      await readNow();
      isReading = false;
      done();
      if (isDue) void reread();
    }, wait);
  });
}

async function readNow(): Promise<void> {
  const begun = Date.now();
  try {
    const topology = await read<Topology>("/v1/topology");
    // Before the first drawing, which begins with the saved places.
    if (saved.get() === null) await readSaved();
    // Reading megabytes takes a while, and so does drawing them: the page answers in between.
    await new Promise((done) => setTimeout(done));
    if (refusal.get() !== null) return;
    lastReadAt = Date.now();
    tookMs = lastReadAt - begun;
    setStale(false);
    const last = network.get();
    network.set({ topology, lost: lost(last, topology) });
    follow(topology.seq);
    // Where the user is unknown yet, the next reading asks again.
    if (user.get() === null) user.set(await read<Who>("/v1/access").catch(() => null));
  } catch (error) {
    if (refusal.get() !== null) return;
    setStale(true);
    const problem = error as Problem;
    network.set({ ...network.get(), problem });
  }
}

/** Links that were there at the last reading and are not now. */
function lost(last: Network, topology: Topology): Network["lost"] {
  // Another process of the controller has found no link yet: that is no loss.
  if (topology.seq - (last.topology?.seq ?? topology.seq) > PROCESS_EVENTS) return new Map();
  const there = new Set(topology.links.map(linkKey));
  const all = new Map([...last.lost].filter(([key]) => !there.has(key)));
  for (const link of last.topology?.links ?? []) {
    const key = linkKey(link);
    if (!there.has(key) && !all.has(key)) all.set(key, { link, at: Date.now() });
  }
  return new Map([...all].slice(-LOST_MAX));
}

/** The name that a switch has, or else its number without zeros. */
export function switchName(dpid: string): string {
  const of = network.get().topology?.switches.find((of) => of.dpid === dpid);
  return of?.name ?? shortDatapath(dpid);
}

/** Forgets links that are gone for good. */
export function forgetLost(): void {
  network.set({ ...network.get(), lost: new Map() });
}

function follow(from: number): void {
  if (stream) return;
  seq = from;
  const path = () => `/v1/events?since=${seq}&follow=true`;
  const changed = (isOpen: boolean) => {
    if (!isOpen) setStale(true);
    else if (staleSince.get() !== null) void reread();
  };
  stream = new Stream(path, (event) => take(event as NetworkEvent), changed);
}

function take(event: NetworkEvent): void {
  seq = event.seq;
  keep([event]);
  if (["intent_layout", "reset"].includes(event.event)) void readSaved();
  if (!HARMLESS.has(event.event)) void reread();
}

/** Adds events, in order and each once. */
export function keep(more: readonly NetworkEvent[]): void {
  const all = new Map(events.get().map((event) => [event.seq, event]));
  for (const event of more) all.set(event.seq, event);
  const sorted = [...all.values()].sort((one, other) => one.seq - other.seq);
  events.set(sorted.slice(-EVENTS_MAX));
}
