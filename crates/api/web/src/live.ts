// Figures that change all the time: one stream for the page, with what its views show.

import { useEffect } from "preact/hooks";
import { Cell, useCell } from "./cell";
import type { LiveDocument, LiveRows, LiveView } from "./documents/network";
import { Stream } from "./stream";

type Rows = { [View in LiveView]: Map<string, LiveRows[View]> };

const VIEWS: LiveView[] = ["links", "ports", "tables", "channels"];
const wanted = new Map<LiveView, number>();
let stream: { asked: string; stream: Stream } | undefined;

function nothing(): Rows {
  return { links: new Map(), ports: new Map(), tables: new Map(), channels: new Map() };
}

/** Replaced at each change; the maps within stay. */
const live = new Cell<{ rows: Rows }>({ rows: nothing() });

/** The rows of these kinds, for as long as a view shows them. */
export function useLive(...views: LiveView[]): Rows {
  const names = views.join();
  useEffect(() => {
    const add = (by: number) => {
      for (const view of views) wanted.set(view, (wanted.get(view) ?? 0) + by);
      queueMicrotask(open);
    };
    add(1);
    return () => add(-1);
  }, [names]);
  return useCell(live).rows;
}

/** What is known of a kind now. */
export function liveRows(): Rows {
  return live.get().rows;
}

function open(): void {
  const asked = VIEWS.filter((view) => (wanted.get(view) ?? 0) > 0).join();
  if (asked === (stream?.asked ?? "")) return;
  stream?.stream.end();
  stream = undefined;
  if (asked === "") return;
  const path = () => `/v1/live?views=${asked}`;
  stream = { asked, stream: new Stream(path, take, () => (snapshot = undefined)) };
}

/** Rows of the snapshot that is under way; rows that it does not have are gone. */
let snapshot: Rows | undefined;

function take(read: unknown): void {
  const document = read as LiveDocument;
  if (document.is_snapshot) snapshot ??= nothing();
  const rows = document.is_snapshot ? snapshot! : live.get().rows;
  for (const view of VIEWS) {
    const into = rows[view] as Map<string, unknown>;
    for (const [key, row] of Object.entries(document[view] ?? {})) {
      if (row === null) into.delete(key);
      else into.set(key, row);
    }
  }
  if (document.is_snapshot && !document.is_last) return;
  snapshot = undefined;
  live.set({ rows });
}
