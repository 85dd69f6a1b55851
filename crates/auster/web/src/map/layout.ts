// Where switches are drawn. The forces are asked once; then a switch stays where it is, and where
// the user has put it, also when the page is loaded again.

import {
  type SimulationLinkDatum,
  type SimulationNodeDatum,
  forceCollide,
  forceLink,
  forceManyBody,
  forceSimulation,
  forceX,
  forceY,
} from "d3-force";

export interface Place {
  readonly x: number;
  readonly y: number;
}

export type Places = ReadonlyMap<string, Place>;

const KEY = "auster:places";
/** Places that are kept in the browser. */
const KEPT_MAX = 4000;
/** The distance between two joined switches. */
const DISTANCE = 120;
/** The time that one turn of the forces takes before the page is drawn again. */
const TURN_MS = 12;

interface Node extends SimulationNodeDatum {
  id: string;
}

function load(): Map<string, Place> {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    const places = new Map<string, Place>();
    for (const entry of Array.isArray(kept) ? kept.slice(0, KEPT_MAX) : []) {
      const [id, x, y] = entry as unknown[];
      if (typeof id !== "string" || !Number.isFinite(x) || !Number.isFinite(y)) continue;
      places.set(id, { x: x as number, y: y as number });
    }
    return places;
  } catch {
    return new Map();
  }
}

function save(places: Places): void {
  const entries = [...places].slice(-KEPT_MAX);
  const rounded = entries.map(([id, { x, y }]) => [id, Math.round(x), Math.round(y)]);
  try {
    localStorage.setItem(KEY, JSON.stringify(rounded));
  } catch {
    // A browser that keeps nothing draws anew each time.
  }
}

export class Layout {
  #places = load();

  get(ids: readonly string[]): Places | null {
    if (ids.some((id) => !this.#places.has(id))) return null;
    return new Map(ids.map((id) => [id, this.#places.get(id)!]));
  }

  put(id: string, place: Place): void {
    this.#places.delete(id);
    this.#places.set(id, place);
    save(this.#places);
  }

  forget(): void {
    this.#places = new Map();
    save(this.#places);
  }

  /** Finds places for those that have none; null if given up by `signal`. */
  async find(
    ids: readonly string[],
    pairs: readonly (readonly [string, string])[],
    signal: AbortSignal,
  ): Promise<Places | null> {
    const nodes: Node[] = ids.map((id) => {
      const { x, y } = this.#places.get(id) ?? {};
      return x === undefined ? { id } : { id, x, y, fx: x, fy: y };
    });
    const fixed = new Map(
      nodes.filter(({ fx }) => fx !== undefined).map((node) => [node.id, node]),
    );
    if (fixed.size > 0) beside(nodes, pairs, fixed);
    else inTurn(nodes, pairs);
    const known = new Set(ids);
    const links: SimulationLinkDatum<Node>[] = pairs
      .filter(([a, b]) => known.has(a) && known.has(b) && a !== b)
      .map(([source, target]) => ({ source, target }));
    const simulation = forceSimulation(nodes)
      .force(
        "link",
        forceLink<Node, SimulationLinkDatum<Node>>(links)
          .id(({ id }) => id)
          .distance(DISTANCE),
      )
      .force(
        "body",
        forceManyBody()
          .strength(-500)
          .distanceMax(DISTANCE * 8),
      )
      .force("collide", forceCollide(DISTANCE / 3))
      .force("x", forceX(0).strength(0.03))
      .force("y", forceY(0).strength(0.045))
      .stop();
    const turns = Math.ceil(
      Math.log(simulation.alphaMin()) / Math.log(1 - simulation.alphaDecay()),
    );
    let since = performance.now();
    for (let turn = 0; turn < turns; turn += 1) {
      simulation.tick();
      if (performance.now() - since < TURN_MS) continue;
      await new Promise((done) => setTimeout(done));
      if (signal.aborted) return null;
      since = performance.now();
    }
    for (const { id, x = 0, y = 0 } of nodes) {
      if (!this.#places.has(id)) this.#places.set(id, { x, y });
    }
    save(this.#places);
    return this.get(ids);
  }
}

/** Starts all switches on a circle, neighbours after each other, so that a ring is not crossed. */
function inTurn(nodes: Node[], pairs: readonly (readonly [string, string])[]): void {
  const neighbours = new Map<string, string[]>(nodes.map(({ id }) => [id, []]));
  for (const [a, b] of pairs) {
    neighbours.get(a)?.push(b);
    neighbours.get(b)?.push(a);
  }
  const order: string[] = [];
  const seen = new Set<string>();
  const waiting = nodes.map(({ id }) => id).reverse();
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    if (seen.has(id)) continue;
    seen.add(id);
    order.push(id);
    waiting.push(...(neighbours.get(id) ?? []).filter((next) => !seen.has(next)).reverse());
  }
  const places = new Map(order.map((id, place) => [id, place]));
  const radius = (DISTANCE * nodes.length) / (2 * Math.PI);
  for (const node of nodes) {
    // The first two of four lie above the others.
    const turn = ((places.get(node.id)! + 0.5) / nodes.length - 0.5) * 2 * Math.PI;
    [node.x, node.y] = [Math.cos(turn) * radius, Math.sin(turn) * radius];
  }
}

/** Starts new switches beside a neighbour that has its place. */
function beside(
  nodes: Node[],
  pairs: readonly (readonly [string, string])[],
  fixed: Map<string, Node>,
): void {
  const neighbours = new Map<string, Node>();
  for (const [a, b] of pairs) {
    const [one, other] = [fixed.get(a), fixed.get(b)];
    if (one && !other) neighbours.set(b, one);
    if (other && !one) neighbours.set(a, other);
  }
  for (const [place, node] of nodes.entries()) {
    const neighbour = neighbours.get(node.id);
    if (node.fx !== undefined || !neighbour) continue;
    node.x = neighbour.x! + DISTANCE * Math.cos(place * 2.4);
    node.y = neighbour.y! + DISTANCE * Math.sin(place * 2.4);
  }
}
