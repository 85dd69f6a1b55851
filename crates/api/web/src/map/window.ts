// The part of the map that is seen: moved and magnified by pointer, keys and buttons.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Places } from "./kept";

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

const MARGIN = 70;
const LEAST = 300;
/** How far each press of a key or button goes. */
const STEP = 0.15;
const MAGNIFICATION = 1.25;

/** All places, with a margin. */
export function around(places: Places): Box {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y } of places.values()) {
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  if (left > right) return { x: -LEAST / 2, y: -LEAST / 2, width: LEAST, height: LEAST };
  const width = Math.max(LEAST, right - left + 2 * MARGIN);
  const height = Math.max(LEAST, bottom - top + 2 * MARGIN);
  return { x: (left + right - width) / 2, y: (top + bottom - height) / 2, width, height };
}

/** A box of the same middle whose sides are `factor` as long. */
function scaled(box: Box, factor: number): Box {
  const [width, height] = [box.width * factor, box.height * factor];
  return {
    x: box.x + (box.width - width) / 2,
    y: box.y + (box.height - height) / 2,
    width,
    height,
  };
}

function shifted(box: Box, right: number, down: number): Box {
  return { ...box, x: box.x + right, y: box.y + down };
}

const KEYS: Record<string, (box: Box) => Box> = {
  "+": (box) => scaled(box, 1 / MAGNIFICATION),
  "=": (box) => scaled(box, 1 / MAGNIFICATION),
  "-": (box) => scaled(box, MAGNIFICATION),
  ArrowLeft: (box) => shifted(box, -STEP * box.width, 0),
  ArrowRight: (box) => shifted(box, STEP * box.width, 0),
  ArrowUp: (box) => shifted(box, 0, -STEP * box.height),
  ArrowDown: (box) => shifted(box, 0, STEP * box.height),
};

/** What the user has chosen to see, or all places until then. */
export function useWindow<Drawn extends Element>(places: Places) {
  const drawn = useRef<Drawn>(null);
  const [chosen, setChosen] = useState<Box | null>(null);
  const box = chosen ?? around(places);
  const now = useRef(box);
  now.current = box;
  useEffect(() => {
    const element: Element = drawn.current!;
    const wheel = (of: Event) => {
      const event = of as WheelEvent;
      // Without a key the wheel moves the page, as everywhere else.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      setChosen(scaled(now.current, event.deltaY > 0 ? MAGNIFICATION : 1 / MAGNIFICATION));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);
  return {
    drawn,
    box,
    show: setChosen,
    fit: () => setChosen(null),
    press: (key: string) => {
      const change = KEYS[key];
      if (change) setChosen(change(now.current));
      return change !== undefined;
    },
    move: (right: number, down: number) => setChosen(shifted(now.current, right, down)),
    /** A distance on the screen as one on the map. */
    perPixel: () => {
      const { width, height } = drawn.current!.getBoundingClientRect();
      return Math.max(now.current.width / width, now.current.height / height);
    },
  };
}

/** Follows a pointer from where it is pressed; `moved` gets the distance since the last call. */
export function drag(event: PointerEvent, moved: (x: number, y: number) => void, end: () => void) {
  const element = event.currentTarget as Element;
  let [x, y] = [event.clientX, event.clientY];
  element.setPointerCapture(event.pointerId);
  const move = (event: Event) => {
    const { clientX, clientY } = event as PointerEvent;
    moved(clientX - x, clientY - y);
    [x, y] = [clientX, clientY];
  };
  const up = () => {
    element.removeEventListener("pointermove", move);
    element.removeEventListener("pointerup", up);
    element.removeEventListener("pointercancel", up);
    end();
  };
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
}
