// A link on the map: one half for each direction, coloured and widened by its load.

import { memo } from "./memo";
import type { LinkRow } from "../documents/network";
import { linkHealth, loadStep } from "../health";
import { switchName } from "../network";
import { percent, rate } from "../units";
import type { Place } from "./kept";
import type { DrawnLink } from "./map";
import { portParts } from "../documents/network";

interface Properties {
  readonly drawn: DrawnLink;
  readonly a: Place;
  readonly b: Place;
  readonly row: LinkRow | undefined;
  /** Where it lies among the links of the same two switches; 0 is the middle. */
  readonly side: number;
}

const BESIDE = 14;
/** The length from which a link has room for a figure. */
const FIGURE_MIN = 105;
const MARKS: Record<string, string> = {
  lost: "✕",
  missing: "?",
  "one way only": "✕",
  drained: "D",
  doubted: "!",
  "drops full frames": "!",
  "not in topology": "!",
};

export const LinkLine = memo(function LinkLine({ drawn, a, b, row, side }: Properties) {
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const [dx, dy] = [
    ((b.y - a.y) / length) * side * BESIDE,
    (-(b.x - a.x) / length) * side * BESIDE,
  ];
  const [from, to] = [
    { x: a.x + dx, y: a.y + dy },
    { x: b.x + dx, y: b.y + dy },
  ];
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  // The figure stands beside the line: right of one that goes down, above one that goes across.
  const across = Math.abs(b.x - a.x) / length;
  const beside = { x: (1 - across) * 24, y: -across * 14 };
  const state = drawn.link && drawn.kind === "there" ? linkHealth(drawn.link).text : drawn.kind;
  const isThere = drawn.kind === "there";
  const mark = MARKS[state];
  const [there, back] = [row?.there?.load ?? null, row?.back?.load ?? null];
  return (
    <g class={`link ${drawn.kind} ${state.replaceAll(" ", "-")}`}>
      <title>{words(drawn, row, state)}</title>
      <line class={`load${isThere ? loadStep(there) : ""}`} {...ends(from, middle)} />
      <line class={`load${isThere ? loadStep(back) : ""}`} {...ends(to, middle)} />
      {mark && (
        <g transform={`translate(${middle.x} ${middle.y})`}>
          <circle r="9" class="mark" />
          <text class="mark" dy="0.35em">
            {mark}
          </text>
        </g>
      )}
      {isThere && !mark && length >= FIGURE_MIN && Math.max(there ?? 0, back ?? 0) >= 0.1 && (
        <text class="figure" x={middle.x + beside.x} y={middle.y + beside.y} dy="0.35em">
          {percent(Math.max(there ?? 0, back ?? 0))}
        </text>
      )}
    </g>
  );
});

function ends(from: Place, to: Place) {
  return { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
}

function words({ from, to }: DrawnLink, row: LinkRow | undefined, state: string): string {
  const [one, other] = [from, to].map((port) => {
    const { dpid, number } = portParts(port);
    return `${switchName(dpid)} port ${number}`;
  });
  const flow = (flow: LinkRow["there"] | undefined) =>
    `${rate(flow?.bps)} (${percent(flow?.load)})`;
  return `${one} – ${other}: ${state}; → ${flow(row?.there)}, ← ${flow(row?.back)}`;
}
