// The state of switches and links in words and tones, the same in pictures and tables.

import type { ChannelRow, Link, LinkRow, Switch } from "./documents/network";
import type { Tone } from "./parts/state";

export interface Health {
  readonly tone: Tone;
  readonly text: string;
}

/** An echo that takes longer is called slow. */
const SLOW_MS = 100;
/** Unsent bytes from which a channel is called full. */
const FULL_BYTES = 64 * 1024;

export function channelHealth(of: Switch, row: ChannelRow | undefined): Health {
  const role = row?.role ?? of.role;
  if (role === "standing by") return { tone: "idle", text: "standing by" };
  if (role !== "serving" || !of.is_connected) return { tone: "bad", text: "away" };
  if (row && row.outbox_bytes >= FULL_BYTES) return { tone: "warn", text: "channel full" };
  if (row?.echo_rtt_ms != null && row.echo_rtt_ms >= SLOW_MS) {
    return { tone: "warn", text: "slow channel" };
  }
  return { tone: "good", text: "connected" };
}

export function linkHealth(link: Link): Health {
  if (!link.is_usable) return { tone: "bad", text: "one way only" };
  if (link.is_drained) return { tone: "idle", text: "drained" };
  if (link.is_doubted) return { tone: "warn", text: "doubted" };
  if (link.is_narrow) return { tone: "warn", text: "drops full frames" };
  if (link.is_stated === false) return { tone: "warn", text: "not in topology" };
  return { tone: "good", text: "up" };
}

/** The greater load of both directions. */
export function greatestLoad(row: LinkRow): number | null {
  const loads = [row.there?.load, row.back?.load].filter((load) => load != null);
  return loads.length === 0 ? null : Math.max(...loads);
}

/** Steps of load, from 0, by which links are coloured and widened; -1 without a figure. */
export const LOAD_STEPS = [0.1, 0.4, 0.7, 0.9];

export function loadStep(load: number | null | undefined): number {
  if (load == null) return -1;
  const above = LOAD_STEPS.findIndex((step) => load < step);
  return above < 0 ? LOAD_STEPS.length : above;
}
