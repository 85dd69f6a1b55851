// Where switches are drawn: where this browser has them, else where they are saved for everyone. For
// the rest the forces are asked once. Then a switch stays where it is, and where the user has put
// it, also when the page is loaded again.

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
import { Cell } from "../cell";
import { type Place, type Places, SWITCHES, load, save } from "./kept";
import { saved, savedFor } from "./saved";
import { run } from "./spread";

/** The distance between two joined switches. */
const DISTANCE = 150;
/** Half of the room that a switch has, with its name. */
const ROOM = 64;

interface Node extends SimulationNodeDatum {
  id: string;
}

class Layout {
  #places = load(SWITCHES);
  /** For switches that have no place here yet. */
  #offered: Places = new Map();
  /** Counts the changes. */
  readonly turn = new Cell(0);

  get(ids: readonly string[]): Places | null {
    for (const id of ids) {
      const place = this.#offered.get(id);
      if (place && !this.#places.has(id)) this.#places.set(id, place);
    }
    if (ids.some((id) => !this.#places.has(id))) return null;
    return new Map(ids.map((id) => [id, this.#places.get(id)!]));
  }

  put(id: string, place: Place): void {
    this.#places.delete(id);
    this.#places.set(id, place);
    this.#changed();
  }

  forget(): void {
    this.#places = new Map();
    this.#offered = new Map();
    this.#changed();
  }

  offer(places: Places): void {
    this.#offered = places;
    this.turn.set(this.turn.get() + 1);
  }

  /** Takes these in the place of its own. */
  use(places: Places): void {
    this.#places = new Map([...this.#places, ...places]);
    this.#changed();
  }

  #changed(): void {
    save(SWITCHES, this.#places);
    this.turn.set(this.turn.get() + 1);
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
          .strength(-900)
          .distanceMax(DISTANCE * 8),
      )
      .force("collide", forceCollide(ROOM))
      .force("x", forceX(0).strength(0.022))
      .force("y", forceY(0).strength(0.055))
      .stop();
    if (!(await run(simulation, signal))) return null;
    for (const { id, x = 0, y = 0 } of nodes) {
      if (!this.#places.has(id)) this.#places.set(id, { x, y });
    }
    this.#changed();
    return this.get(ids);
  }
}

export const layout = new Layout();
saved.follow(() => layout.offer(savedFor(false)));

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
