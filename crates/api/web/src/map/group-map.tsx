// The picture of a large network: groups that open as they are magnified. The table of groups and
// that of switches say the same.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LinkRow, Switch } from "../documents/network";
import { portParts } from "../documents/network";
import { type Health, greatestLoad, loadStep } from "../health";
import { count, shortDatapath } from "../units";
import { type Discs, useDiscs } from "./discs";
import type { Place } from "./kept";
import type { DrawnLink } from "./map";
import { NODE, type PaintedDisc, type Scene, type View, isOpen, paint } from "./paint";
import { Tools } from "./tools";
import { type Box, drag, useWindow } from "./window";

interface Properties {
  readonly switches: readonly Switch[];
  readonly links: readonly DrawnLink[];
  readonly loads: ReadonlyMap<string, LinkRow>;
  readonly health: (of: Switch) => Health;
  readonly chosen: string | null;
  readonly choose: (dpid: string | null) => void;
  readonly group: string | null;
  readonly open: (group: string | null) => void;
  readonly discs: Discs;
}

/** A pointer that moves less has clicked. */
const CLICK_PIXELS = 4;
/** The least distance from a switch at which a pointer means it. */
const NEAR_PIXELS = 9;
/** A map that was painted elsewhere so short a time ago is moving. */
const MOVING_MS = 200;

/** The groups of these switches; null until they are laid out. */
export function useGroups(
  switches: readonly Switch[],
  links: readonly DrawnLink[],
  isWanted: boolean,
): Discs | null {
  const ids = useMemo(
    () => (isWanted ? switches.map(({ dpid }) => dpid) : []),
    [switches, isWanted],
  );
  const names = useMemo(() => new Map(switches.map(({ dpid, name }) => [dpid, name])), [switches]);
  const pairs = useMemo(
    () => links.map(({ from, to }) => [portParts(from).dpid, portParts(to).dpid] as const),
    [links],
  );
  return useDiscs(ids, (id) => names.get(id) ?? null, pairs);
}

/** What is wrong in a group, in words; "" without. */
export function faultOf(healths: readonly Health[]): { text: string; tone: Health["tone"] } {
  const bad = healths.filter(({ tone }) => tone === "bad").length;
  const warn = healths.filter(({ tone }) => tone === "warn").length;
  if (bad > 0) return { text: `${bad} away`, tone: "bad" };
  return warn > 0 ? { text: `${warn} slow`, tone: "warn" } : { text: "", tone: "good" };
}

export function GroupMap(properties: Properties) {
  const { switches, links, choose, group, open, discs } = properties;
  const corners = useMemo(() => cornersOf(discs), [discs.discs]);
  const view = useWindow<HTMLDivElement>(corners);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [under, setUnder] = useState<Under | null>(null);
  const size = useSize(view.drawn);
  const seen = seenBy(view.box, size);
  const scene = useScene(properties);
  useEffect(() => {
    // A group that the address names is what is seen.
    const disc = discs.discs.find(({ group: { id } }) => id === group);
    view.show(disc ? boxOf(disc) : null);
  }, [group, discs.discs.length]);
  useRepainted(canvas, scene, seen);

  const found = (event: PointerEvent): Under | null => {
    const { left, top } = canvas.current!.getBoundingClientRect();
    return underneath(scene, seen, event.clientX - left, event.clientY - top);
  };
  const pressed = (event: PointerEvent) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    const of = found(event);
    const by = 1 / seen.scale;
    let [place, pixels]: [Place, number] = [of?.place ?? { x: 0, y: 0 }, 0];
    const moved = (right: number, down: number) => {
      pixels += Math.abs(right) + Math.abs(down);
      if (pixels < CLICK_PIXELS) return;
      place = { x: place.x + right * by, y: place.y + down * by };
      if (of?.node !== undefined) discs.putSwitch(switches[of.node]!.dpid, place);
      else if (of?.disc !== undefined) discs.putGroup(of.disc, place);
      else view.move(-right * by, -down * by);
    };
    setUnder(null);
    drag(event, moved, () => {
      if (pixels < CLICK_PIXELS) clicked(of);
    });
  };
  const clicked = (of: Under | null) => {
    if (of?.node !== undefined) choose(switches[of.node]!.dpid);
    else if (of?.disc !== undefined) open(discs.discs[of.disc]!.group.id);
    else choose(null);
  };
  const keyed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target !== event.currentTarget) return;
    if (event.key === "Escape") {
      choose(null);
      open(null);
    } else if (!view.press(event.key)) return;
    event.preventDefault();
  };
  const hovered = (event: PointerEvent) => {
    if (event.buttons === 0) setUnder(found(event));
  };
  const label =
    `Map of ${switches.length} switches in ${discs.discs.length} groups, and ${links.length} ` +
    "links. The tables below have them all.";
  return (
    <div class="map groups">
      <div
        ref={view.drawn}
        class="canvas"
        role="group"
        tabIndex={0}
        aria-label={label}
        onKeyDown={keyed}
        onPointerDown={pressed}
        onPointerMove={hovered}
        onPointerLeave={() => setUnder(null)}
      >
        <canvas ref={canvas} aria-hidden="true" />
        {under && <Hover scene={scene} seen={seen} under={under} />}
      </div>
      <Tools
        press={view.press}
        fit={() => {
          open(null);
          view.fit();
        }}
        anew={discs.anew}
      />
    </div>
  );
}

/** What is under the pointer, and where it is on the map. */
interface Under {
  readonly node?: number;
  readonly disc?: number;
  readonly place: Place;
}

function underneath(scene: Scene, seen: View, left: number, top: number): Under | null {
  const [x, y] = [(left - seen.left) / seen.scale, (top - seen.top) / seen.scale];
  const disc = scene.discs.findIndex((disc) => Math.hypot(disc.x - x, disc.y - y) <= disc.r);
  if (disc >= 0 && !isOpen(scene.discs[disc]!, seen.scale)) {
    return { disc, place: scene.discs[disc]! };
  }
  let [nearest, least] = [-1, Math.max(NODE, NEAR_PIXELS / seen.scale)];
  for (const [place, node] of scene.nodes.entries()) {
    if (!isOpen(scene.discs[node.disc]!, seen.scale)) continue;
    const far = Math.hypot(node.x - x, node.y - y);
    if (far <= least) [nearest, least] = [place, far];
  }
  return nearest < 0 ? null : { node: nearest, place: scene.nodes[nearest]! };
}

function Hover({ scene, seen, under }: { scene: Scene; seen: View; under: Under }) {
  const { node, disc, place } = under;
  const text =
    node !== undefined
      ? scene.nodes[node]?.title
      : disc !== undefined && scene.discs[disc] && titleOf(scene.discs[disc]);
  if (!text) return null;
  const [x, y] = [place.x * seen.scale + seen.left, place.y * seen.scale + seen.top];
  const side = x > seen.width / 2 ? { right: `${seen.width - x + 12}px` } : { left: `${x + 12}px` };
  return (
    <div class="hover" aria-hidden="true" style={{ top: `${Math.max(y - 14, 4)}px`, ...side }}>
      {text}
    </div>
  );
}

function titleOf({ name, count: of, fault }: PaintedDisc): string {
  return [name, `${of} switches`, fault].filter((text) => text !== "").join(", ");
}

function cornersOf({ discs }: Discs): Map<string, Place> {
  const corners = new Map<string, Place>();
  for (const { group, x, y, r } of discs) {
    corners.set(`${group.id} a`, { x: x - r, y: y - r });
    corners.set(`${group.id} b`, { x: x + r, y: y + r });
  }
  return corners;
}

function boxOf({ x, y, r }: { x: number; y: number; r: number }): Box {
  const side = r * 2.2 + 40;
  return { x: x - side / 2, y: y - side / 2, width: side, height: side };
}

/** The whole box is seen, in the middle. */
function seenBy(box: Box, { width, height }: { width: number; height: number }): View {
  const scale = Math.min(width / box.width, height / box.height) || 1;
  const left = (width - box.width * scale) / 2 - box.x * scale;
  const top = (height - box.height * scale) / 2 - box.y * scale;
  return { scale, left, top, width, height };
}

function useSize(of: { current: Element | null }) {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useEffect(() => {
    const element = of.current!;
    const measure = () => {
      const { clientWidth: width, clientHeight: height } = element;
      setSize((last) =>
        last.width === width && last.height === height ? last : { width, height },
      );
    };
    measure();
    const sizes = new ResizeObserver(measure);
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);
  return size;
}

/** What is painted: the places, and the states and loads as they are now. */
function useScene(properties: Properties): Scene {
  const { switches, links, loads, health, chosen, group, discs } = properties;
  const numbers = useMemo(
    () => new Map(switches.map(({ dpid }, place) => [dpid, place])),
    [switches],
  );
  const ends = useMemo(
    () => links.map(({ from, to }) => [from, to].map((end) => numbers.get(portParts(end).dpid))),
    [links, numbers],
  );
  // Moving the map changes nothing of it, and gives the same properties.
  return useMemo(() => {
    const healths = switches.map(health);
    const lines = links.flatMap((drawn, place) => {
      const [a, b] = ends[place]!;
      if (a === undefined || b === undefined) return [];
      const row = loads.get(drawn.key) ?? drawn.link;
      const isLost = drawn.kind !== "there" || row?.is_usable === false;
      return [{ a, b, isLost, step: row && !isLost ? loadStep(greatestLoad(row)) : -1 }];
    });
    return {
      discs: discs.discs.map(({ group: { name, members }, x, y, r }) => {
        const { text, tone } = faultOf(members.map((id) => healths[numbers.get(id)!]!));
        return { x, y, r, name, count: members.length, fault: text, tone };
      }),
      nodes: switches.map(({ dpid, name, host_count: hosts }, place) => {
        const { tone, text } = healths[place]!;
        const called = name ?? shortDatapath(dpid);
        const title = `${called}, ${text}, ${count(hosts)} host${hosts === 1 ? "" : "s"}`;
        const at = discs.places.get(dpid) ?? { x: 0, y: 0 };
        const disc = discs.of.get(dpid) ?? 0;
        const short = within(called, discs.discs[disc]?.group.name ?? "");
        return { ...at, name: short, title, tone, disc };
      }),
      lines,
      chosenNode: switches.findIndex(({ dpid }) => dpid === chosen),
      chosenDisc: discs.discs.findIndex(({ group: { id } }) => id === group),
    };
  }, [properties]);
}

/** A name without that of its group, which stands above it. */
function within(name: string, group: string): string {
  const rest = name.startsWith(group) ? name.slice(group.length).replace(/^[-_.:/ ]+/, "") : name;
  return rest === "" ? name : rest;
}

/** Paints once for each frame of the screen in which something is another. */
function useRepainted(canvas: { current: HTMLCanvasElement | null }, scene: Scene, seen: View) {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setTurn((turn) => turn + 1);
    scheme.addEventListener("change", changed);
    return () => scheme.removeEventListener("change", changed);
  }, []);
  const place = `${seen.scale} ${seen.left} ${seen.top}`;
  const last = useRef({ place, at: 0 });
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const frame = requestAnimationFrame(() => {
      const element = canvas.current;
      const context = element?.getContext("2d");
      if (!element || !context || seen.width === 0) return;
      const pixels = devicePixelRatio || 1;
      const [width, height] = [seen.width, seen.height].map((side) => Math.round(side * pixels));
      if (element.width !== width || element.height !== height) {
        [element.width, element.height] = [width!, height!];
      }
      context.setTransform(pixels, 0, 0, pixels, 0, 0);
      const style = getComputedStyle(element);
      const known = new Map<string, string>();
      const colour = (name: string): string => {
        let value = known.get(name);
        if (value === undefined) known.set(name, (value = style.getPropertyValue(name).trim()));
        return value;
      };
      const isMoving =
        last.current.place !== place && performance.now() - last.current.at < MOVING_MS;
      paint(context, scene, seen, colour, isMoving ? "moving" : "all");
      last.current = { place, at: performance.now() };
      if (isMoving) timer = setTimeout(() => setTurn((turn) => turn + 1), MOVING_MS);
      element.dataset.painted = String(Number(element.dataset.painted ?? 0) + 1);
    });
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
    };
  }, [scene, seen.scale, seen.left, seen.top, seen.width, seen.height, turn]);
}
