// The picture of the network: switches, links in both directions, and what was there.

import { useEffect, useMemo } from "preact/hooks";
import { useCell } from "../cell";
import type { Link, LinkRow, Switch } from "../documents/network";
import { portParts } from "../documents/network";
import type { Health } from "../health";
import { LinkLine } from "./link";
import type { Places } from "./kept";
import { layout } from "./layout";
import { SwitchNode } from "./node";
import { Tools } from "./tools";
import { drag, useWindow } from "./window";

/** More links than this have no figures beside them; the table has all. */
const FIGURES_MAX = 40;

export interface DrawnLink {
  readonly key: string;
  readonly from: string;
  readonly to: string;
  readonly kind: "there" | "lost" | "missing";
  readonly link?: Link;
}

interface Properties {
  readonly switches: readonly Switch[];
  readonly links: readonly DrawnLink[];
  readonly loads: ReadonlyMap<string, LinkRow>;
  readonly health: (of: Switch) => Health;
  readonly chosen: string | null;
  readonly choose: (dpid: string | null) => void;
  /** Switches at hops of a chosen circuit or path, in order. */
  readonly marked?: ReadonlySet<string>;
}

export function NetworkMap(properties: Properties) {
  const { switches, links } = properties;
  const ids = useMemo(() => switches.map(({ dpid }) => dpid), [switches]);
  const pairs = useMemo(
    () => links.map(({ from, to }) => [portParts(from).dpid, portParts(to).dpid] as const),
    [links],
  );
  const places = usePlaces(ids, pairs);
  if (!places)
    return (
      <p class="map empty" role="status">
        Laying out the network …
      </p>
    );
  return <Drawing {...properties} places={places} />;
}

/** The places of all that are drawn: found once, and afterwards only for new ones. */
function usePlaces(ids: readonly string[], pairs: readonly (readonly [string, string])[]) {
  const turn = useCell(layout.turn);
  const key = ids.join();
  const places = useMemo(() => layout.get(ids), [key, turn]);
  useEffect(() => {
    if (places) return;
    const gone = new AbortController();
    void layout.find(ids, pairs, gone.signal);
    return () => gone.abort();
  }, [places, key]);
  return places;
}

function Drawing(properties: Properties & { readonly places: Places }) {
  const { switches, links, loads, health, chosen, choose, places } = properties;
  const view = useWindow<SVGSVGElement>(places);
  const { box } = view;
  const keyed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const done = view.press(event.key);
    if (event.key === "Escape") choose(null);
    if (done) event.preventDefault();
  };
  const pan = (event: PointerEvent) => {
    if (event.target !== event.currentTarget || event.pointerType === "touch") return;
    const by = view.perPixel();
    drag(
      event,
      (x, y) => view.move(-x * by, -y * by),
      () => {},
    );
  };
  const sides = useMemo(() => sideBySide(links), [links]);
  return (
    <div class="map">
      <svg
        ref={view.drawn}
        viewBox={`${box.x} ${box.y} ${box.width} ${box.height}`}
        class={links.length > FIGURES_MAX ? "dense" : undefined}
        role="group"
        aria-label={`Map of ${switches.length} switches and ${links.length} links`}
        onKeyDown={keyed}
        onPointerDown={pan}
      >
        {links.map((drawn) => {
          const [a, b] = [drawn.from, drawn.to].map((port) => places.get(portParts(port).dpid));
          if (!a || !b) return null;
          const row = loads.get(drawn.key) ?? drawn.link;
          return <LinkLine drawn={drawn} a={a} b={b} row={row} side={sides.get(drawn.key) ?? 0} />;
        })}
        {switches.map((of) => (
          <SwitchNode
            key={of.dpid}
            of={of}
            place={places.get(of.dpid)!}
            health={health(of)}
            isChosen={chosen === of.dpid}
            isMarked={properties.marked?.has(of.dpid) ?? false}
            choose={() => choose(chosen === of.dpid ? null : of.dpid)}
            put={(place) => layout.put(of.dpid, place)}
            perPixel={view.perPixel}
          />
        ))}
      </svg>
      <Tools press={view.press} fit={view.fit} anew={() => layout.forget()} />
    </div>
  );
}

/** Links between the same two switches lie beside each other: places from the middle. */
function sideBySide(links: readonly DrawnLink[]): Map<string, number> {
  const bundles = new Map<string, string[]>();
  for (const { key, from, to } of links) {
    const ends = [portParts(from).dpid, portParts(to).dpid].sort().join();
    const bundle = bundles.get(ends);
    if (bundle) bundle.push(key);
    else bundles.set(ends, [key]);
  }
  const sides = new Map<string, number>();
  for (const bundle of bundles.values()) {
    for (const [place, key] of bundle.entries()) sides.set(key, place - (bundle.length - 1) / 2);
  }
  return sides;
}
