// Groups of the switches of a large network: by their names where these have common beginnings,
// otherwise those that are most joined to each other. The same network has the same groups.

import { shortDatapath } from "../units";

export interface Group {
  readonly id: string;
  readonly name: string;
  readonly members: readonly string[];
}

export interface Grouping {
  readonly groups: readonly Group[];
  /** The place of each switch's group. */
  readonly of: ReadonlyMap<string, number>;
}

type Pairs = readonly (readonly [string, string])[];

/** The group of what belongs to no other. */
export const OTHERS = "others";
const GROUPS_MAX = 64;
/** Fewer groups than this say nothing; of clusters, the next finer ones are taken. */
const CLUSTERS_MIN = 8;
/** The share of switches whose names must have a common beginning with others. */
const NAMED_MIN = 0.8;
/** The largest share that one group by name may have. */
const SHARE_MAX = 0.6;
const PASSES_MAX = 12;

/** Parts of a name by which switches may be grouped, the coarsest first. */
const BEGINNINGS: ((name: string) => string | undefined)[] = [
  (name) => /^([^-_.:/ ]+)[-_.:/ ]/.exec(name)?.[1],
  (name) => /^([^-_.:/ ]+[-_.:/ ][^-_.:/ ]+)[-_.:/ ]/.exec(name)?.[1],
  (name) => /^(.*\D)\d+$/.exec(name)?.[1]?.replace(/[-_.:/ ]+$/, ""),
];

export function grouped(
  ids: readonly string[],
  nameOf: (id: string) => string | null,
  pairs: Pairs,
): Grouping {
  const sorted = [...ids].sort();
  for (const beginning of BEGINNINGS) {
    const parts = byName(sorted, (id) => {
      const name = nameOf(id);
      return name === null ? undefined : beginning(name);
    });
    if (parts) return numbered(parts);
  }
  return numbered(byLinks(sorted, nameOf, pairs));
}

/** In the order of their names. */
export function numbered(some: readonly Group[]): Grouping {
  const order = (one: Group, other: Group) =>
    one.name.localeCompare(other.name, "en", { numeric: true });
  const groups = [...some].sort(order);
  const of = new Map<string, number>();
  for (const [place, { members }] of groups.entries()) {
    for (const id of members) of.set(id, place);
  }
  return { groups, of };
}

/** A group by links has the number of a switch in its middle, and is named after it. */
export function groupName(id: string, nameOf: (id: string) => string | null): string {
  return /^[0-9a-f]{16}$/.test(id) ? `around ${nameOf(id) ?? shortDatapath(id)}` : id;
}

function byName(
  ids: readonly string[],
  beginningOf: (id: string) => string | undefined,
): Group[] | null {
  const parts = new Map<string, string[]>();
  for (const id of ids) add(parts, beginningOf(id) || OTHERS, id);
  const alone = [...parts].filter(([name, { length }]) => name !== OTHERS && length === 1);
  for (const [name, [id]] of alone) {
    parts.delete(name);
    add(parts, OTHERS, id!);
  }
  const rest = parts.get(OTHERS)?.length ?? 0;
  const largest = Math.max(...[...parts.values()].map(({ length }) => length));
  const isGood =
    parts.size >= 3 &&
    parts.size <= GROUPS_MAX &&
    rest <= ids.length * (1 - NAMED_MIN) &&
    largest <= ids.length * SHARE_MAX;
  if (!isGood) return null;
  return [...parts].map(([name, members]) => ({ id: name, name, members }));
}

function add<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

function byLinks(
  ids: readonly string[],
  nameOf: (id: string) => string | null,
  pairs: Pairs,
): Group[] {
  const places = new Map(ids.map((id, place) => [id, place]));
  const edges: [number, number, number][] = [];
  const degrees = new Array<number>(ids.length).fill(0);
  for (const [a, b] of pairs) {
    const [one, other] = [places.get(a), places.get(b)];
    if (one === undefined || other === undefined || one === other) continue;
    edges.push([one, other, 1]);
    degrees[one]! += 1;
    degrees[other]! += 1;
  }
  const members = new Map<number, number[]>();
  for (const [node, cluster] of clusters(ids.length, edges).entries()) add(members, cluster, node);
  const parts = [...members.values()].sort((a, b) => b.length - a.length || a[0]! - b[0]!);
  const kept = parts.filter(({ length }, place) => length > 1 && place < GROUPS_MAX - 1);
  const rest = parts.filter((part) => !kept.includes(part)).flat();
  const groups = kept.map((part) => {
    const hub = part.reduce((best, node) => (degrees[node]! > degrees[best]! ? node : best));
    const id = ids[hub]!;
    return { id, name: groupName(id, nameOf), members: part.map((node) => ids[node]!) };
  });
  if (rest.length === 0) return groups;
  rest.sort((a, b) => a - b);
  return [...groups, { id: OTHERS, name: OTHERS, members: rest.map((node) => ids[node]!) }];
}

/**
 * Communities by modularity (Blondel and others, 2008), of the coarsest level that still has some.
 * Nodes are taken in order, and the first of equal choices, so that nothing is left to chance.
 */
export function clusters(count: number, edges: readonly [number, number, number][]): number[] {
  let level = Array.from({ length: count }, (_, node) => node);
  let graph = { count, edges: [...edges] };
  for (;;) {
    const moved = communities(graph.count, graph.edges);
    const found = new Set(moved).size;
    if (found === graph.count) return level;
    const next = level.map((cluster) => moved[cluster]!);
    if (found < CLUSTERS_MIN && new Set(level).size <= GROUPS_MAX) return level;
    level = next;
    graph = merged(moved, found, graph.edges);
  }
}

/** One level: each node joins the community of neighbours that it is most joined to. */
function communities(count: number, edges: readonly [number, number, number][]): number[] {
  const neighbours: Map<number, number>[] = Array.from({ length: count }, () => new Map());
  const weights = new Array<number>(count).fill(0);
  let total = 0;
  for (const [a, b, weight] of edges) {
    weights[a]! += weight;
    weights[b]! += weight;
    total += 2 * weight;
    if (a === b) continue;
    neighbours[a]!.set(b, (neighbours[a]!.get(b) ?? 0) + weight);
    neighbours[b]!.set(a, (neighbours[b]!.get(a) ?? 0) + weight);
  }
  const of = Array.from({ length: count }, (_, node) => node);
  const sums = [...weights];
  for (let pass = 0, isMoving = true; isMoving && pass < PASSES_MAX; pass += 1) {
    isMoving = false;
    for (let node = 0; node < count; node += 1) {
      const own = of[node]!;
      const weight = weights[node]!;
      sums[own]! -= weight;
      const joined = new Map<number, number>([[own, 0]]);
      for (const [neighbour, by] of neighbours[node]!) {
        const community = of[neighbour]!;
        joined.set(community, (joined.get(community) ?? 0) + by);
      }
      let [best, gain] = [own, joined.get(own)! - (sums[own]! * weight) / total];
      for (const [community, by] of joined) {
        const here = by - (sums[community]! * weight) / total;
        if (here > gain + 1e-9) [best, gain] = [community, here];
      }
      sums[best]! += weight;
      of[node] = best;
      isMoving ||= best !== own;
    }
  }
  const numbers = new Map<number, number>();
  return of.map((community) => {
    if (!numbers.has(community)) numbers.set(community, numbers.size);
    return numbers.get(community)!;
  });
}

function merged(of: number[], count: number, edges: readonly [number, number, number][]) {
  const sums = new Map<number, number>();
  for (const [a, b, weight] of edges) {
    const [one, other] = [of[a]!, of[b]!].sort((x, y) => x - y) as [number, number];
    const key = one * count + other;
    sums.set(key, (sums.get(key) ?? 0) + weight);
  }
  const joined = [...sums].map(([key, weight]): [number, number, number] => [
    Math.floor(key / count),
    key % count,
    weight,
  ]);
  return { count, edges: joined };
}
