// Draws a large network on a canvas: groups as discs until they are large enough on the screen to
// show their switches one by one. What is drawn alike is drawn at once.

import type { Tone } from "../parts/state";
import type { Place } from "./kept";

export interface PaintedDisc extends Place {
  readonly r: number;
  readonly name: string;
  readonly count: number;
  /** Words about what is wrong in it, or none. */
  readonly fault: string;
  readonly tone: Tone;
}

export interface PaintedNode extends Place {
  readonly name: string;
  /** Words under a pointer. */
  readonly title: string;
  readonly disc: number;
  readonly tone: Tone;
}

export interface PaintedLine {
  /** Places of its ends among the nodes. */
  readonly a: number;
  readonly b: number;
  /** The step of its load, -1 without a figure. */
  readonly step: number;
  readonly isLost: boolean;
}

export interface Scene {
  readonly discs: readonly PaintedDisc[];
  readonly nodes: readonly PaintedNode[];
  readonly lines: readonly PaintedLine[];
  /** Places among the nodes and discs, or -1. */
  readonly chosenNode: number;
  readonly chosenDisc: number;
}

/** A point of the map is at `x * scale + left` on the screen. */
export interface View {
  readonly scale: number;
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** How much is drawn: links within closed groups are left out while the map moves. */
export type Detail = "all" | "moving";

/** A disc with this radius on the screen shows its switches. */
const OPEN_PIXELS = 130;
export const NODE = 15;
const NAME_MAX = 16;
/** Room on the screen between two switches that have names below them. */
const NAMED_PIXELS = 46;
const ROOM = 72;
/** The height of a line of text. */
const LINE = 14;
const WIDTHS = [1.5, 1.5, 2.5, 3.5, 4.5, 6];
const DEGREES = Math.PI * 2;

export function isOpen(disc: PaintedDisc, scale: number): boolean {
  return disc.r * scale >= OPEN_PIXELS;
}

type Colours = (name: string) => string;

export function paint(
  context: CanvasRenderingContext2D,
  scene: Scene,
  view: View,
  colour: Colours,
  detail: Detail,
): void {
  const { scale, left, top, width, height } = view;
  const at = ({ x, y }: Place) => ({ x: x * scale + left, y: y * scale + top });
  const open = scene.discs.map((disc) => isOpen(disc, scale));
  context.clearRect(0, 0, width, height);
  const lines = sorted(scene, open, at, view);
  paintBundles(context, scene, lines.bundles, at, colour);
  for (const [place, disc] of scene.discs.entries()) {
    const { x, y } = at(disc);
    const r = disc.r * scale;
    if (x + r < 0 || y + r < 0 || x - r > width || y - r > height) continue;
    const isChosen = place === scene.chosenDisc;
    context.beginPath();
    context.arc(x, y, r, 0, DEGREES);
    context.fillStyle = colour(isChosen && !open[place] ? "--chosen" : "--page");
    context.fill();
    context.lineWidth = isChosen ? 3 : disc.tone === "good" ? 1 : 2;
    context.setLineDash(disc.tone === "bad" ? [3, 5] : disc.tone === "warn" ? [9, 5] : []);
    const edge = disc.tone === "good" || disc.tone === "idle" ? "--edge" : `--${disc.tone}`;
    context.strokeStyle = colour(isChosen ? "--link" : edge);
    context.stroke();
  }
  context.setLineDash([]);
  if (detail === "moving") lines.alike.delete("faint");
  paintAlike(context, lines.alike, colour);
  paintNodes(context, scene, view, at, open, colour);
  paintNames(context, scene, view, at, open, colour);
}

interface Bundle {
  readonly a: number;
  readonly b: number;
  n: number;
  step: number;
  lost: number;
}

/** Lines on the screen that are drawn alike: four numbers for each. */
type Segments = number[];

/** Links of the same two groups are one line, unless one of the groups shows its switches. */
function sorted(
  { discs, nodes, lines }: Scene,
  open: readonly boolean[],
  at: (place: Place) => Place,
  { width, height }: View,
) {
  const alike = new Map<string, Segments>();
  const bundles = new Map<number, Bundle>();
  const points = nodes.map(at);
  const add = (key: string, a: Place, b: Place) => {
    // Most of a magnified map is not seen.
    if (Math.max(a.x, b.x) < 0 || Math.min(a.x, b.x) > width) return;
    if (Math.max(a.y, b.y) < 0 || Math.min(a.y, b.y) > height) return;
    const list = alike.get(key);
    if (list) list.push(a.x, a.y, b.x, b.y);
    else alike.set(key, [a.x, a.y, b.x, b.y]);
  };
  for (const { a, b, step, isLost } of lines) {
    const [one, other] = [nodes[a]!, nodes[b]!];
    const isDetailed = open[one.disc]! || open[other.disc]!;
    if (isDetailed || one.disc === other.disc) {
      add(isLost ? "lost" : isDetailed ? String(step) : "faint", points[a]!, points[b]!);
      continue;
    }
    const [from, to] = one.disc < other.disc ? [one.disc, other.disc] : [other.disc, one.disc];
    const key = from * discs.length + to;
    let bundle = bundles.get(key);
    if (!bundle) bundles.set(key, (bundle = { a: from, b: to, n: 0, step: -1, lost: 0 }));
    bundle.n += 1;
    bundle.step = Math.max(bundle.step, step);
    bundle.lost += Number(isLost);
  }
  return { alike, bundles: [...bundles.values()] };
}

function paintAlike(
  context: CanvasRenderingContext2D,
  alike: ReadonlyMap<string, Segments>,
  colour: Colours,
): void {
  for (const [key, segments] of alike) {
    const step = Number(key);
    context.setLineDash(key === "lost" ? [4, 5] : []);
    context.strokeStyle = colour(
      key === "lost" ? "--bad" : key === "faint" ? "--line" : loadColour(step),
    );
    context.lineWidth = key === "faint" ? 1 : key === "lost" ? 2 : WIDTHS[step + 1]!;
    // One by one: a path of thousands of lines that cross takes a second.
    for (let at = 0; at < segments.length; at += 4) {
      context.beginPath();
      context.moveTo(segments[at]!, segments[at + 1]!);
      context.lineTo(segments[at + 2]!, segments[at + 3]!);
      context.stroke();
    }
  }
  context.setLineDash([]);
}

/** They pass below the discs. */
function paintBundles(
  context: CanvasRenderingContext2D,
  { discs }: Scene,
  bundles: readonly Bundle[],
  at: (place: Place) => Place,
  colour: Colours,
): void {
  for (const { a, b, n, step, lost } of bundles) {
    const [from, to] = edges(discs[a]!, discs[b]!, at);
    context.setLineDash(lost === n ? [6, 6] : []);
    context.strokeStyle = colour(lost === n ? "--bad" : loadColour(step));
    context.lineWidth = Math.min(9, 1.5 + Math.log2(n));
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    context.stroke();
    if (lost === 0) continue;
    const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    context.setLineDash([]);
    mark(context, middle, 4.5, "bad", colour);
  }
  context.setLineDash([]);
}

function loadColour(step: number): string {
  return step < 0 ? "--load-none" : `--load-${step}`;
}

/** Where the line between two discs meets their edges. */
function edges(a: PaintedDisc, b: PaintedDisc, at: (place: Place) => Place): [Place, Place] {
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const [dx, dy] = [(b.x - a.x) / length, (b.y - a.y) / length];
  return [
    at({ x: a.x + dx * a.r, y: a.y + dy * a.r }),
    at({ x: b.x - dx * b.r, y: b.y - dy * b.r }),
  ];
}

function paintNodes(
  context: CanvasRenderingContext2D,
  { nodes, chosenNode }: Scene,
  { scale, width, height }: View,
  at: (place: Place) => Place,
  open: readonly boolean[],
  colour: Colours,
): void {
  const good = new Path2D();
  const r = Math.max(1.6, Math.min(NODE, NODE * scale));
  const faults: [Place, Tone][] = [];
  for (const [place, node] of nodes.entries()) {
    const { x, y } = at(node);
    if (x + r < 0 || y + r < 0 || x - r > width || y - r > height) continue;
    if (node.tone === "good" && place !== chosenNode) {
      good.moveTo(x + r, y);
      good.arc(x, y, r, 0, DEGREES);
    } else if (place === chosenNode) {
      context.beginPath();
      context.arc(x, y, Math.max(r, 6) + 3, 0, DEGREES);
      context.fillStyle = colour("--chosen");
      context.fill();
      context.lineWidth = 3;
      context.strokeStyle = colour("--link");
      context.stroke();
      if (node.tone !== "good") faults.push([{ x, y }, node.tone]);
    } else faults.push([{ x, y }, node.tone]);
  }
  const isAnyOpen = open.includes(true);
  context.fillStyle = colour(isAnyOpen ? "--raised" : "--idle");
  context.fill(good);
  if (isAnyOpen) {
    context.lineWidth = 2;
    context.strokeStyle = colour("--good");
    context.stroke(good);
  }
  for (const [place, tone] of faults) mark(context, place, Math.max(r * 0.8, 3), tone, colour);
}

/** The shapes of states, as in tables: a cross, a triangle, a ring. */
function mark(
  context: CanvasRenderingContext2D,
  { x, y }: Place,
  r: number,
  tone: Tone,
  colour: Colours,
): void {
  context.beginPath();
  if (tone === "bad") {
    context.moveTo(x - r, y - r);
    context.lineTo(x + r, y + r);
    context.moveTo(x + r, y - r);
    context.lineTo(x - r, y + r);
  } else if (tone === "warn") {
    context.moveTo(x, y - r);
    context.lineTo(x + r, y + r);
    context.lineTo(x - r, y + r);
    context.closePath();
  } else context.arc(x, y, r, 0, DEGREES);
  context.lineWidth = Math.max(2, r / 4);
  context.strokeStyle = colour(`--${tone}`);
  context.stroke();
}

function paintNames(
  context: CanvasRenderingContext2D,
  scene: Scene,
  { scale, width, height }: View,
  at: (place: Place) => Place,
  open: readonly boolean[],
  colour: Colours,
): void {
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  const font = colour("--sans");
  const say = (text: string, x: number, y: number, ink: string) => {
    context.lineWidth = 4;
    context.strokeStyle = colour("--surface");
    context.strokeText(text, x, y);
    context.fillStyle = colour(ink);
    context.fillText(text, x, y);
  };
  if (ROOM * scale >= NAMED_PIXELS) {
    context.font = `12px ${font}`;
    const taken = new Map<number, [number, number][]>();
    for (const place of byUrgency(scene)) {
      const node = scene.nodes[place]!;
      if (!open[node.disc]) continue;
      const { x, y } = at(node);
      if (x < 0 || y < 0 || x > width || y > height) continue;
      const text = shortened(node.name);
      const below = y + NODE * Math.min(1, scale) + 9;
      const half = context.measureText(text).width / 2 + 2;
      if (isFree(taken, below, x - half, x + half)) say(text, x, below, "--text");
    }
  }
  for (const [place, disc] of scene.discs.entries()) {
    const { x, y } = at(disc);
    const r = disc.r * scale;
    if (x + r < 0 || y + r < 0 || x - r > width || y - r > height) continue;
    if (open[place]) {
      // Above its switches, or at the upper edge if it is beyond.
      context.font = `600 13px ${font}`;
      const above = Math.min(Math.max(y - r - 10, 14), y + r);
      say(`${disc.name}, ${disc.count} switches`, x, above, "--text");
      continue;
    }
    if (r < 13) continue;
    context.font = `600 12px ${font}`;
    say(fitted(context, disc.name, Math.max(2 * r + 8, 60)), x, r < 24 ? y : y - 7, "--text");
    if (r < 24) continue;
    context.font = `11px ${font}`;
    const [text, ink] = disc.fault
      ? [disc.fault, `--${disc.tone}`]
      : [`${disc.count} switches`, "--text-soft"];
    say(text!, x, y + 8, ink!);
  }
}

/** Names of what is chosen come first, then of what has a fault: another may have no room. */
function byUrgency({ nodes, chosenNode }: Scene): number[] {
  const rank = (place: number) =>
    place === chosenNode ? 0 : nodes[place]!.tone === "good" ? 2 : 1;
  const order = nodes.map((_, place) => place);
  return order.sort((one, other) => rank(one) - rank(other) || one - other);
}

/** Whether a name has room, which is then taken. */
function isFree(
  taken: Map<number, [number, number][]>,
  y: number,
  from: number,
  to: number,
): boolean {
  const row = Math.floor(y / LINE);
  const near = [row - 1, row, row + 1].flatMap((row) => taken.get(row) ?? []);
  if (near.some(([left, right]) => from < right && left < to)) return false;
  const list = taken.get(row);
  if (list) list.push([from, to]);
  else taken.set(row, [[from, to]]);
  return true;
}

/** The end of a long name is what sets it apart from others. */
function shortened(name: string): string {
  return name.length <= NAME_MAX ? name : `…${name.slice(1 - NAME_MAX)}`;
}

function fitted(context: CanvasRenderingContext2D, name: string, width: number): string {
  let text = name;
  while (text.length > 3 && context.measureText(text).width > width) {
    text = `…${text.slice(text.startsWith("…") ? 2 : 1)}`;
  }
  return text;
}
