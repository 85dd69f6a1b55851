// "Events": what has happened, live; each has an address of its own.

import { useEffect, useMemo, useState } from "preact/hooks";
import { changed, go, href, useAddress } from "../address";
import { useCell } from "../cell";
import type { NetworkEvent } from "../documents/network";
import { earlier, eventText, eventTone } from "../happened";
import { events, network } from "../network";
import { Commands } from "../parts/commands";
import { State } from "../parts/state";
import { Table } from "../parts/table";
import { timeOfDay } from "../units";

export function Events() {
  const { parameters } = useAddress();
  const all = useCell(events);
  const { topology } = useCell(network);
  const kind = parameters.get("kind") ?? "";
  const of = parameters.get("switch") ?? "";
  const seq = Number(parameters.get("seq") ?? 0);
  const [isPaused, setIsPaused] = useState(false);
  const [held, setHeld] = useState<readonly NetworkEvent[]>([]);
  const newest = topology?.seq;
  useEffect(() => {
    if (seq > 0) void earlier(seq);
    else if (newest !== undefined) void earlier(newest);
  }, [seq, newest !== undefined]);
  const shown = isPaused ? held : all;
  const rows = useMemo(
    () => shown.filter((event) => isAsked(event, kind, of)).reverse(),
    [shown, kind, of],
  );
  const kinds = useMemo(() => [...new Set(all.map(({ event }) => event))].sort(), [all]);
  const one = all.find((event) => event.seq === seq);
  const pause = () => {
    setHeld(all);
    setIsPaused(!isPaused);
  };
  const set = (name: string) => (event: Event) => {
    const { value } = event.currentTarget as HTMLInputElement;
    go(changed({ [name]: value.trim(), "events.page": undefined }), true);
  };
  return (
    <>
      <h1>Events</h1>
      <div class="filter">
        <label>
          <span>Kind</span>
          <select value={kind} onChange={set("kind")}>
            <option value="">all</option>
            {[...new Set([...kinds, kind])]
              .filter((name) => name !== "")
              .map((name) => (
                <option value={name}>{name}</option>
              ))}
          </select>
        </label>
        <label>
          <span>Switch</span>
          <input type="search" value={of} onInput={set("switch")} placeholder="number" />
        </label>
        <button type="button" aria-pressed={isPaused} onClick={pause}>
          {isPaused ? "Go on" : "Pause"}
        </button>
      </div>
      {seq > 0 && <One seq={seq} event={one} />}
      <Table
        id="events"
        caption={`Events, newest first${isPaused ? ", paused" : ""}`}
        columns={[
          {
            key: "seq",
            head: "Time",
            cell: (event: NetworkEvent) => (
              <a href={href("/events", { seq: event.seq })}>{timeOfDay(event.time_s * 1000)}</a>
            ),
          },
          {
            key: "kind",
            head: "Kind",
            cell: (event) => <State tone={eventTone(event)} text={event.event} />,
          },
          {
            key: "text",
            head: "What",
            cell: (event) => <span class="wrap">{eventText(event)}</span>,
          },
        ]}
        rows={rows}
        rowKey={(event) => String(event.seq)}
        isChosen={(event) => event.seq === seq}
        empty="Nothing has happened yet that matches."
      />
      <Commands
        paths={[href("/v1/events", { kinds: kind, switch: of })]}
        commands={[command(kind, of)]}
      />
    </>
  );
}

function isAsked(event: NetworkEvent, kind: string, of: string): boolean {
  if (kind !== "" && event.event !== kind) return false;
  return of === "" || JSON.stringify(event).includes(of);
}

function One({ seq, event }: { seq: number; event: NetworkEvent | undefined }) {
  return (
    <section class="one" aria-label={`Event ${seq}`}>
      <h2>{`Event ${seq}`}</h2>
      {event ? (
        <dl class="facts">
          {Object.entries(event).map(([name, value]) => (
            <div>
              <dt>{name}</dt>
              <dd>{typeof value === "object" ? JSON.stringify(value) : String(value)}</dd>
            </div>
          ))}
        </dl>
      ) : (
        <p class="empty">The controller no longer has it, or never had.</p>
      )}
      <a href={changed({ seq: undefined })}>All events</a>
    </section>
  );
}

function command(kind: string, of: string): string {
  const word = (text: string) => text.replaceAll(/[^\w:.-]/g, "");
  const options = [kind && ` --kind ${word(kind)}`, of && ` --switch ${word(of)}`];
  return `auster events --follow${options.join("")} --api ${location.host}`;
}
