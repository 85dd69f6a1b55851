// What a port has received and sent while the page was open.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Rates } from "../documents/network";
import { rate, timeOfDay } from "../units";

interface Properties {
  readonly port: string;
  readonly name: string;
  readonly rates: (port: string) => Rates | null;
}

const EVERY_MS = 2000;
const SAMPLES_MAX = 300;
const HEIGHT = 180;
/** The shortest time that is drawn. */
const LEAST_S = 60;

export function PortPlot({ port, name, rates }: Properties) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current!;
    // A single time has no scale.
    const times = [Date.now() / 1000 - LEAST_S];
    const received: (number | null)[] = [null];
    const sent: (number | null)[] = [null];
    let plot: uPlot | undefined;
    const draw = () => {
      plot?.destroy();
      plot = new uPlot(options(element), [times, received, sent], element);
    };
    const sample = () => {
      const row = rates(port);
      times.push(Date.now() / 1000);
      received.push(row?.rx_bps ?? null);
      sent.push(row?.tx_bps ?? null);
      if (times.length > SAMPLES_MAX) [times, received, sent].forEach((list) => list.shift());
      plot?.setData([times, received, sent]);
    };
    sample();
    draw();
    const timer = setInterval(sample, EVERY_MS);
    const sizes = new ResizeObserver(() =>
      plot?.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    sizes.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      clearInterval(timer);
      sizes.disconnect();
      scheme.removeEventListener("change", draw);
      plot?.destroy();
    };
  }, [port]);
  const label = `Bits a second of port ${name}, since the page shows it; the table has them too`;
  return <div class="plot" ref={place} role="img" aria-label={label} />;
}

function options(element: HTMLElement): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis: uPlot.Axis = {
    stroke: colour("--text-soft"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  const value = (_: uPlot, bits: number | null) => rate(bits);
  return {
    width: element.clientWidth,
    height: HEIGHT,
    cursor: { points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { range: (_, least, most) => [Math.min(least, most - LEAST_S), most] },
      y: { range: (_, __, most) => [0, Math.max(1000, (most ?? 0) * 1.1)] },
    },
    axes: [
      { ...axis, values: (_, times) => times.map((s) => timeOfDay(s * 1000).slice(0, 8)) },
      { ...axis, size: 90, values: (_, bits) => bits.map((one) => rate(one)) },
    ],
    series: [
      { label: "time", value: (_, s) => (s == null ? "–" : timeOfDay(s * 1000).slice(0, 8)) },
      { label: "receives", stroke: colour("--series-1"), width: 2, value },
      { label: "sends", stroke: colour("--series-2"), width: 2, dash: [6, 4], value },
    ],
  };
}
