// Numbers and times as operators read them.

const RATES = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
const COUNTS = ["", " k", " M", " G", " T"];
const NONE = "–";

function scaled(value: number, units: string[]): string {
  let step = 0;
  while (value >= 1000 && step < units.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = step === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)}${units[step]}`;
}

export function rate(bits: number | null | undefined): string {
  return bits == null
    ? NONE
    : scaled(
        bits,
        RATES.map((unit) => ` ${unit}`),
      );
}

export function count(value: number | null | undefined): string {
  return value == null ? NONE : value < 10_000 ? String(Math.round(value)) : scaled(value, COUNTS);
}

export function bytes(value: number | null | undefined): string {
  return value == null ? NONE : scaled(value, [" B", " kB", " MB", " GB"]);
}

export function percent(fraction: number | null | undefined): string {
  if (fraction == null) return NONE;
  const value = fraction * 100;
  if (value > 0 && value < 0.05) return "< 0.1 %";
  return `${value > 0 && value < 10 ? value.toFixed(1) : value.toFixed(0)} %`;
}

export function milliseconds(value: number | null | undefined): string {
  if (value == null) return NONE;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value.toFixed(value < 1 ? 2 : value < 10 ? 1 : 0)} ms`;
}

/** The time of day, with a date where it is not today's. */
export function timeOfDay(at: number): string {
  const date = new Date(at);
  const time = date.toLocaleTimeString([], { hour12: false });
  const isToday = date.toDateString() === new Date().toDateString();
  const part = String(date.getMilliseconds()).padStart(3, "0");
  return isToday ? `${time}.${part}` : `${date.toLocaleDateString()} ${time}`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return NONE;
  const [s, m, h] = [seconds % 60, (seconds / 60) % 60, (seconds / 3600) % 24].map(Math.floor);
  const days = Math.floor(seconds / 86_400);
  if (days > 0) return `${days} d ${h} h`;
  if (seconds >= 3600) return `${h} h ${m} min`;
  if (seconds >= 60) return `${m} min ${s} s`;
  return `${s} s`;
}

/** A datapath's number without the zeros before it, as people write it. */
export function shortDatapath(dpid: string): string {
  return dpid.replace(/^0+(?=.)/, "");
}
