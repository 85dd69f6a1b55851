// How far something is that is asked for, and where it was stated.

import type { Layers } from "../documents/qos";
import { type Tone, State } from "./state";

const TONES: Record<string, Tone> = {
  active: "good",
  installed: "good",
  "in effect": "good",
  installing: "info",
  changing: "info",
  written: "info",
  waiting: "warn",
  "not in effect": "bad",
  failed: "bad",
};

/** Where a row was stated. */
export type Stated<T> = T & { readonly origin: string };

export function both<T extends object>({ file, api }: Layers<T>): Stated<T>[] {
  const from = (origin: string) => (row: T) => ({ ...row, origin });
  return [...file.map(from("configuration")), ...api.map(from("API"))];
}

export function Progress({ of }: { of: { state: string; reasons: string[] } | undefined }) {
  if (!of) return <>–</>;
  return (
    <>
      <State tone={TONES[of.state] ?? "idle"} text={of.state} />
      {of.reasons.map((reason) => (
        <p class="note">{reason}</p>
      ))}
    </>
  );
}
