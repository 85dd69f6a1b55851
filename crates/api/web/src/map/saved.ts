// The places that somebody has saved in the controller, for everyone who opens the map.

import { Cell } from "../cell";
import { Problem, WAIT_MS, send } from "../request";
import type { Place, Places } from "./kept";

/** More switches than this are drawn in groups, at other distances. */
export const DRAWN_MAX = 300;

const PATH = "/v1/layout";

export interface Saved {
  readonly places: Places;
  /** The controller's name for this version; null if nobody has saved any. */
  readonly tag: string | null;
}

/** Null until they have been read. */
export const saved = new Cell<Saved | null>(null);

/** The saved places that a map of one or the other kind can use: they are of all its switches. */
export function savedFor(isGrouped: boolean): Places {
  const places = saved.get()?.places ?? new Map();
  return places.size > DRAWN_MAX === isGrouped ? places : new Map();
}

/** Reads them. A controller that cannot say has none: the page works without. */
export async function readSaved(): Promise<void> {
  try {
    saved.set(await ask());
  } catch {
    if (saved.get() === null) saved.set({ places: new Map(), tag: null });
  }
}

/** Saves these, if nobody has saved others since they were read here. */
export async function save(places: Places): Promise<void> {
  const tag = saved.get()?.tag ?? null;
  const rows = [...places].map(([id, { x, y }]) => [id, [Math.round(x), Math.round(y)]]);
  const headers = new Headers({ "content-type": "application/json" });
  if (tag === null) headers.set("if-none-match", "*");
  else headers.set("if-match", tag);
  const body = JSON.stringify({ places: Object.fromEntries(rows) });
  saved.set(await ask({ method: "PUT", headers, body }));
}

async function ask(change?: RequestInit): Promise<Saved> {
  try {
    const bound = AbortSignal.timeout(WAIT_MS);
    const response = await send(PATH, "application/json", bound, change);
    const { places } = (await response.json()) as { places: Record<string, [number, number]> };
    const rows = Object.entries(places).map(([id, [x, y]]): [string, Place] => [id, { x, y }]);
    return { places: new Map(rows), tag: response.headers.get("etag") };
  } catch (error) {
    throw error instanceof Problem ? error : new Problem(0, "the controller does not answer");
  }
}
