// Where groups are drawn, and their switches within them. Both are found by forces in short turns,
// so that the page answers meanwhile, and are the same each time.

import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from "d3-force";
import type { Grouping } from "./groups";
import type { Place } from "./kept";

/** A group's disc on the map. */
export interface Disc extends Place {
  readonly r: number;
}

type Pairs = readonly (readonly [string, string])[];

/** The room of a switch within its group, and between two groups. */
const ROOM = 72;
const GAP = 90;
/** The longest turn before the page may do something else. */
const TURN_MS = 12;
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

export function radius(count: number): number {
  return ROOM * (0.6 * Math.sqrt(count) + 0.5);
}

/** A place for the member of this number, as seeds lie in a sunflower. */
export function seed(place: number, count: number): Place {
  const far = (radius(count) - ROOM / 2) * Math.sqrt((place + 0.5) / count);
  return { x: Math.cos(place * GOLDEN) * far, y: Math.sin(place * GOLDEN) * far };
}

/** The centres of groups by their numbers; those in `fixed` stay. */
export async function spreadGroups(
  { groups, of }: Grouping,
  pairs: Pairs,
  fixed: ReadonlyMap<string, Place>,
  signal: AbortSignal,
): Promise<Place[] | null> {
  const bundles = new Map<string, { source: number; target: number; count: number }>();
  for (const [a, b] of pairs) {
    const [one, other] = [of.get(a), of.get(b)];
    if (one === undefined || other === undefined || one === other) continue;
    const [source, target] = one < other ? [one, other] : [other, one];
    const key = `${source} ${target}`;
    const bundle = bundles.get(key);
    if (bundle) bundle.count += 1;
    else bundles.set(key, { source, target, count: 1 });
  }
  const most = Math.max(1, ...[...bundles.values()].map(({ count }) => count));
  const nodes = groups.map(({ id, members }) => {
    const { x, y } = fixed.get(id) ?? {};
    const r = radius(members.length);
    return x === undefined ? { r } : { r, x, y, fx: x, fy: y };
  });
  const simulation = forceSimulation(nodes)
    .force(
      "link",
      forceLink<(typeof nodes)[number], { source: number; target: number; count: number }>([
        ...bundles.values(),
      ])
        .distance(({ source, target }) => {
          const [one, other] = [source, target] as unknown as { r: number }[];
          return one!.r + other!.r + GAP;
        })
        .strength(({ count }) => 0.1 + 0.5 * (count / most)),
    )
    .force(
      "body",
      forceManyBody<(typeof nodes)[number]>().strength(({ r }) => -12 * r),
    )
    .force("collide", forceCollide<(typeof nodes)[number]>(({ r }) => r + GAP / 2).iterations(3))
    .force("x", forceX(0).strength(0.025))
    .force("y", forceY(0).strength(0.11))
    .stop();
  if (!(await run(simulation, signal))) return null;
  return nodes.map((node) => {
    const { x = 0, y = 0 } = node as Partial<Place>;
    return { x, y };
  });
}

/** Where the members of a group are, from its centre. */
export async function spreadMembers(
  members: readonly string[],
  pairs: Pairs,
  signal: AbortSignal,
): Promise<Place[] | null> {
  const places = new Map(members.map((id, place) => [id, place]));
  const links = pairs.flatMap(([a, b]) => {
    const [source, target] = [places.get(a), places.get(b)];
    return source === undefined || target === undefined || a === b ? [] : [{ source, target }];
  });
  const nodes: Partial<Place>[] = members.map((_, place) => seed(place, members.length));
  const simulation = forceSimulation(nodes)
    .force("link", forceLink(links).distance(ROOM * 0.9))
    .force(
      "body",
      forceManyBody()
        .strength(-160)
        .distanceMax(ROOM * 6),
    )
    .force("collide", forceCollide(ROOM / 2.4))
    .force("x", forceX(0).strength(0.05))
    .force("y", forceY(0).strength(0.05))
    .stop();
  if (!(await run(simulation, signal))) return null;
  const found = nodes.map(({ x = 0, y = 0 }) => ({ x, y }));
  const farthest = Math.max(1, ...found.map(({ x, y }) => Math.hypot(x, y)));
  const factor = Math.min(1.3, (radius(members.length) - ROOM / 2) / farthest);
  return found.map(({ x, y }) => ({ x: x * factor, y: y * factor }));
}

interface Turning {
  tick(): unknown;
  alphaMin(): number;
  alphaDecay(): number;
}

/** All turns of the forces; false if given up by `signal`. */
export async function run(simulation: Turning, signal: AbortSignal): Promise<boolean> {
  const turns = Math.ceil(Math.log(simulation.alphaMin()) / Math.log(1 - simulation.alphaDecay()));
  let since = performance.now();
  for (let turn = 0; turn < turns; turn += 1) {
    simulation.tick();
    if (performance.now() - since < TURN_MS) continue;
    await new Promise((done) => setTimeout(done));
    if (signal.aborted) return false;
    since = performance.now();
  }
  return !signal.aborted;
}
