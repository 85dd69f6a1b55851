// Places that the browser keeps, and as a file that another browser can read.

export interface Place {
  readonly x: number;
  readonly y: number;
}

/** Switches on a map that draws all of them. */
export const SWITCHES = "auster:places";
/** Groups of a large map, and their switches from the group's centre. */
export const GROUPS = "auster:groups";
export const MEMBERS = "auster:members";

const KEYS = [SWITCHES, GROUPS, MEMBERS];
/** Places of a kind. */
const KEPT_MAX = 4000;
const NAME_MAX = 300;
/** No map is larger. */
const FAR = 1e6;
const FILE_MAX = 4 * 2 ** 20;

export function load(key: string): Map<string, Place> {
  try {
    return places(JSON.parse(localStorage.getItem(key) ?? "[]"));
  } catch {
    return new Map();
  }
}

/** The last ones are kept, where there are too many. */
export function save(key: string, all: ReadonlyMap<string, Place>): void {
  try {
    localStorage.setItem(key, JSON.stringify(rows(all)));
  } catch {
    // A browser that keeps nothing draws anew each time.
  }
}

function rows(all: ReadonlyMap<string, Place>): [string, number, number][] {
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

/** All that is kept, as a file. */
export function exported(): string {
  return JSON.stringify(Object.fromEntries(KEYS.map((key) => [key, rows(load(key))])));
}

/** Takes a file in the place of what is kept; why it cannot, or null. */
export async function imported(file: Blob): Promise<string | null> {
  if (file.size > FILE_MAX) return "the file is too large to be one of places";
  let read: unknown;
  try {
    read = JSON.parse(await file.text());
  } catch {
    return "the file is no JSON";
  }
  const kinds = KEYS.map((key) => [key, places((read as Record<string, unknown>)?.[key])] as const);
  if (kinds.every(([, { size }]) => size === 0)) return "the file has no places";
  for (const [key, all] of kinds) save(key, all);
  return null;
}
