// A switch on the map. Its ring is the health of its channel; its hosts are a count.

import type { Switch } from "../documents/network";
import type { Health } from "../health";
import { count, shortDatapath } from "../units";
import type { Place } from "./kept";
import { drag } from "./window";

interface Properties {
  readonly of: Switch;
  readonly place: Place;
  readonly health: Health;
  readonly isChosen: boolean;
  readonly isMarked: boolean;
  readonly choose: () => void;
  readonly put: (place: Place) => void;
  readonly perPixel: () => number;
}

const RADIUS = 20;
/** A pointer that moves less has clicked. */
const CLICK_PIXELS = 4;
/** Letters of a name that fit within the circle, and below it. */
const WITHIN_MAX = 6;
const BELOW_MAX = 18;
/** Hosts of a chosen switch that are drawn; all are in its table. */
const DOTS_MAX = 24;

export function SwitchNode(properties: Properties) {
  const { of, place, health, isChosen, isMarked, choose, put, perPixel } = properties;
  const pressed = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const by = perPixel();
    let [{ x, y }, pixels] = [place, 0];
    const moved = (right: number, down: number) => {
      pixels += Math.abs(right) + Math.abs(down);
      [x, y] = [x + right * by, y + down * by];
      if (pixels >= CLICK_PIXELS) put({ x, y });
    };
    drag(event, moved, () => {
      if (pixels < CLICK_PIXELS) choose();
    });
  };
  const keyed = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  };
  const name = of.name ?? shortDatapath(of.dpid);
  const hosts = `${of.host_count} host${of.host_count === 1 ? "" : "s"}`;
  const below = [
    name.length > WITHIN_MAX ? shortened(name) : "",
    health.tone === "good" ? "" : health.text,
  ].filter((text) => text !== "");
  return (
    <g
      class={`switch ${health.tone}${isChosen ? " chosen" : ""}${isMarked ? " marked" : ""}`}
      transform={`translate(${place.x} ${place.y})`}
      role="button"
      tabindex={0}
      aria-pressed={isChosen}
      onPointerDown={pressed}
      onKeyDown={keyed}
    >
      <title>{`Switch ${name}, ${health.text}, ${hosts}`}</title>
      {isChosen && <Dots count={of.host_count} />}
      <circle r={RADIUS + 5} class="ring" />
      <circle r={RADIUS} class="body" />
      <text dy="-0.05em" class="name">
        {name.length <= WITHIN_MAX ? name : shortDatapath(of.dpid).slice(-WITHIN_MAX)}
      </text>
      <text dy="1.25em" class="hosts">{`${count(of.host_count)} h`}</text>
      {below.map((text, line) => (
        <text y={RADIUS + 20 + 14 * line} class={text === health.text ? "under state" : "under"}>
          {text}
        </text>
      ))}
    </g>
  );
}

/** The end of a long name is what sets it apart from others. */
function shortened(name: string): string {
  return name.length <= BELOW_MAX ? name : `…${name.slice(1 - BELOW_MAX)}`;
}

/** Hosts as dots around their switch. */
function Dots({ count: all }: { count: number }) {
  const shown = Math.min(all, DOTS_MAX);
  const dots = Array.from({ length: shown }, (_, place) => {
    const angle = (place / shown) * 2 * Math.PI - Math.PI / 2;
    return [Math.cos(angle) * (RADIUS + 18), Math.sin(angle) * (RADIUS + 18)] as const;
  });
  return (
    <>
      {dots.map(([cx, cy]) => (
        <circle cx={cx} cy={cy} r="4" class="host" />
      ))}
    </>
  );
}
