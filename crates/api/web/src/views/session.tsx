// A session between two relays: its connections, queues, and channels with their lanes.

import type { Channel, RelayQueue, Session } from "../documents/relays";
import type { Health } from "../health";
import { type Column, Table } from "../parts/table";
import { bytes, count, milliseconds } from "../units";
import { Figures } from "./switch";

/** A round trip that takes longer is called slow. */
const SLOW_US = 200_000;

export function sessionHealth({ is_up: isUp, rtt_us: rtt, policy_map: map }: Session): Health {
  if (!isUp) return { tone: "bad", text: "away" };
  if (map?.is_in_sync === false) return { tone: "warn", text: "ends have different maps" };
  if (rtt !== null && rtt >= SLOW_US) return { tone: "warn", text: "slow" };
  return { tone: "good", text: "connected" };
}

/** Bytes of a session that wait to be sent: in its queues, and for room in its lanes. */
export function waiting({ policy, channels }: Session): number {
  const queues = policy?.queues ?? [];
  return (
    queues.reduce((sum, queue) => sum + queue.bytes_waiting, 0) +
    channels.reduce((sum, channel) => sum + channel.queued_bytes, 0)
  );
}

export function SessionView({ session }: { session: Session }) {
  const { policy, policy_map: map } = session;
  return (
    <section aria-label={`Session with ${session.name}`}>
      <h2>{`Session with ${session.name}`}</h2>
      <Figures
        figures={[
          ["Order", session.order || "–"],
          ["Sessions begun", count(session.sessions)],
          ["Changes of address", count(session.failovers)],
          ["Channels closed", count(session.channels_closed)],
          ["Policy map", map ? `generation ${map.generation}` : "none"],
          ["Same at both ends", map?.is_in_sync == null ? "–" : map.is_in_sync ? "yes" : "no"],
        ]}
      />
      <Carriers session={session} />
      {policy && <Queues algorithm={policy.algorithm} queues={policy.queues} />}
      <Channels channels={session.channels} />
    </section>
  );
}

function Carriers({ session }: { session: Session }) {
  return (
    <Table
      id="carriers"
      caption="Connections"
      columns={[
        {
          key: "mark",
          head: "Code point",
          cell: ({ code_point: mark }) => mark ?? "none",
          order: ({ code_point: mark }) => mark ?? -1,
        },
        {
          key: "rtt",
          head: "Round trip",
          isNumber: true,
          cell: ({ rtt_us: rtt }) => milliseconds(rtt / 1000),
          order: ({ rtt_us: rtt }) => rtt,
        },
        {
          key: "lost",
          head: "Packets lost",
          isNumber: true,
          cell: ({ lost_packets: lost }) => count(lost),
          order: ({ lost_packets: lost }) => lost,
        },
      ]}
      rows={session.carriers}
      rowKey={({ code_point: mark }) => String(mark)}
      empty="No connection is open now."
    />
  );
}

function Queues({ algorithm, queues }: { algorithm: string; queues: readonly RelayQueue[] }) {
  const number = (
    key: string,
    head: string,
    value: (of: RelayQueue) => number,
    shown: (value: number) => string = count,
  ): Column<RelayQueue> => ({
    key,
    head,
    isNumber: true,
    cell: (of) => shown(value(of)),
    order: value,
  });
  return (
    <Table
      id="relay-queues"
      caption={`Queues of the policy map, served ${algorithm}`}
      columns={[
        { key: "queue", head: "Queue", cell: ({ queue }) => queue, order: ({ queue }) => queue },
        number("waiting", "Messages that wait", (of) => of.messages_waiting),
        number("bytes", "Bytes that wait", (of) => of.bytes_waiting, bytes),
        number("sent", "Messages sent", (of) => of.messages_out),
        number("sent-bytes", "Bytes sent", (of) => of.bytes_out, bytes),
        number("duplicate", "Shed as doubles", (of) => of.shed_duplicate),
        number("stale", "Shed as stale", (of) => of.shed_stale),
        number("full", "Shed when full", (of) => of.shed_full),
      ]}
      rows={queues}
      rowKey={({ queue }) => String(queue)}
      empty="The map has no queue."
    />
  );
}

function Channels({ channels }: { channels: readonly Channel[] }) {
  const counted = ({ count: of, bytes: size }: Channel["taken"]) => `${count(of)}, ${bytes(size)}`;
  return (
    <Table
      id="channels"
      caption="Channels"
      columns={[
        {
          key: "channel",
          head: "Channel",
          cell: ({ channel, agent }) => `${channel} ${agent}`,
          order: ({ channel }) => channel,
        },
        {
          key: "taken",
          head: "To the other relay",
          isNumber: true,
          cell: ({ taken }) => counted(taken),
          order: ({ taken }) => taken.count,
        },
        {
          key: "given",
          head: "From it",
          isNumber: true,
          cell: ({ given }) => counted(given),
          order: ({ given }) => given.count,
        },
        {
          key: "waits",
          head: "Waits",
          isNumber: true,
          cell: ({ queued_count: of, queued_bytes: size }) => `${count(of)}, ${bytes(size)}`,
          order: ({ queued_bytes: size }) => size,
        },
        {
          key: "kept",
          head: "Kept",
          isNumber: true,
          cell: ({ kept_bytes: size }) => bytes(size),
          order: ({ kept_bytes: size }) => size,
        },
        {
          key: "held",
          head: "Held",
          isNumber: true,
          cell: ({ held_count: of }) => count(of),
          order: ({ held_count: of }) => of,
        },
        { key: "out", head: "Lanes out", cell: ({ lanes_out: lanes }) => <Lanes of={lanes} /> },
        { key: "in", head: "Lanes in", cell: ({ lanes_in: lanes }) => <Lanes of={lanes} /> },
      ]}
      rows={channels}
      rowKey={({ channel }) => String(channel)}
      empty="No channel is open now."
    />
  );
}

/** Lanes that have carried something. */
function Lanes({ of }: { of: Record<string, number> }) {
  const used = Object.entries(of).filter(([, messages]) => messages > 0);
  if (used.length === 0) return <>–</>;
  const texts = used.map(([name, messages]) => `${name} ${count(messages)}`);
  return <span class="list">{texts.join(", ")}</span>;
}
