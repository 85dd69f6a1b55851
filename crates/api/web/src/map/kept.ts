// Places that the browser keeps.

export interface Place {
  readonly x: number;
  readonly y: number;
}

export type Places = ReadonlyMap<string, Place>;

/** Switches on a map that draws all of them. */
export const SWITCHES = "auster:places";
/** Groups of a large map, and their switches from the group's centre. */
export const GROUPS = "auster:groups";
export const MEMBERS = "auster:members";

/** Places of a kind. */
const KEPT_MAX = 4000;
const NAME_MAX = 300;
/** No map is larger. */
const FAR = 1e6;

export function load(key: string): Map<string, Place> {
  try {
    return places(JSON.parse(localStorage.getItem(key) ?? "[]"));
  } catch {
    return new Map();
  }
}

/** The last ones are kept, where there are too many. */
export function save(key: string, all: Places): void {
  try {
    localStorage.setItem(key, JSON.stringify(rows(all)));
  } catch {
    // A browser that keeps nothing draws anew each time.
  }
}

function rows(all: Places): [string, number, number][] {
  const entries = [...all].slice(-KEPT_MAX);
  return entries.map(([id, { x, y }]) => [id, Math.round(x), Math.round(y)]);
}

function places(read: unknown): Map<string, Place> {
  const all = new Map<string, Place>();
  for (const row of Array.isArray(read) ? read.slice(0, KEPT_MAX) : []) {
    if (!Array.isArray(row)) continue;
    const [id, x, y] = row as unknown[];
    if (typeof id !== "string" || id.length > NAME_MAX) continue;
    if (!isNear(x) || !isNear(y)) continue;
    all.set(id, { x, y });
  }
  return all;
}

function isNear(value: unknown): value is number {
  return typeof value === "number" && Math.abs(value) <= FAR;
}
