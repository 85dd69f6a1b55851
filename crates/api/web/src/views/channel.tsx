// "Channel": how messages get to the switches and back: auster's own connections, and the relays
// beside it.

import { changed, useAddress } from "../address";
import { useCell } from "../cell";
import type { ChannelRow, Switch } from "../documents/network";
import type { Relay, Relays, Session } from "../documents/relays";
import { channelHealth } from "../health";
import { useLive } from "../live";
import { network } from "../network";
import { Commands } from "../parts/commands";
import { State } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { useDocument } from "../request";
import { bytes, count, milliseconds } from "../units";
import { SessionView, sessionHealth, waiting } from "./session";

const EVERY_MS = 2000;

export function Channel() {
  const { topology, problem } = useCell(network);
  const { channels } = useLive("channels");
  const relays = useDocument<Relays>("/v1/relays", null, EVERY_MS);
  return (
    <>
      <h1>Control channel</h1>
      <h2>Connections of switches</h2>
      {!topology && (problem ? <Trouble problem={problem} /> : <Loading what="the switches" />)}
      {topology && <Connections switches={topology.switches} channels={channels} />}
      <h2>Relays beside this controller</h2>
      <Trouble problem={relays.problem} />
      {relays.isLoading && <Loading what="the relays" />}
      {relays.document && <RelayList relays={relays.document.relays} />}
      <Commands paths={["/v1/live?views=channels", "/v1/relays"]} />
    </>
  );
}

interface ConnectionProperties {
  readonly switches: readonly Switch[];
  readonly channels: ReadonlyMap<string, ChannelRow>;
}

function Connections({ switches, channels }: ConnectionProperties) {
  const row = (of: Switch) => channels.get(of.dpid);
  const figure = (
    key: string,
    head: string,
    value: (row: ChannelRow) => number | null,
    shown: (value: number | null | undefined) => string = count,
  ): Column<Switch> => ({
    key,
    head,
    isNumber: true,
    cell: (of) => shown(row(of) && value(row(of)!)),
    order: (of) => (row(of) ? (value(row(of)!) ?? -1) : -1),
  });
  return (
    <Table
      id="connections"
      caption="Connections of switches"
      columns={[
        {
          key: "dpid",
          head: "Switch",
          cell: ({ dpid, name }) => <a href={`/switch/${dpid}`}>{name ?? dpid}</a>,
          order: ({ dpid, name }) => name ?? dpid,
        },
        {
          key: "state",
          head: "Channel",
          cell: (of) => <State {...channelHealth(of, row(of))} />,
          order: (of) => channelHealth(of, row(of)).text,
        },
        {
          key: "from",
          head: "From",
          cell: ({ address, tls }) => [address, tls].filter((part) => part).join(" ") || "–",
          order: ({ address }) => address ?? "",
        },
        figure("echo", "Echo", (of) => of.echo_rtt_ms, milliseconds),
        figure("unsent", "Unsent", (of) => of.outbox_bytes, bytes),
        figure("unread", "Unread", (of) => of.inbox_backlog),
        figure("ins", "Packet-ins shed", (of) => of.packet_ins_shed),
        figure("outs", "Packet-outs shed", (of) => of.packet_outs_shed),
        figure("in", "Messages in", (of) => of.messages_in),
        figure("out", "Messages out", (of) => of.messages_out),
      ]}
      rows={switches}
      rowKey={({ dpid }) => dpid}
      empty="No switch is connected."
      pageSize={20}
    />
  );
}

type Row = Session & { readonly socket: string };

function RelayList({ relays }: { relays: readonly Relay[] }) {
  const { parameters } = useAddress();
  if (relays.length === 0) {
    return (
      <p class="empty">
        The configuration names no relay. Where switches come by <code>auster relay</code>, start it
        with <code>--status unix:FILE</code>, and name that socket here:{" "}
        <code>relays = "unix:FILE"</code> in <code>[api]</code>.
      </p>
    );
  }
  const rows = relays.flatMap(({ socket, sessions }): Row[] =>
    sessions.map((session) => ({ ...session, socket })),
  );
  const named = parameters.get("relay") ?? (rows.length === 1 ? keyOf(rows[0]!) : null);
  const chosen = rows.find((row) => keyOf(row) === named);
  return (
    <>
      {relays.map(
        ({ socket, problem }) =>
          problem !== null && (
            <div class="trouble" role="alert">
              <strong>
                <code>{socket}</code>
              </strong>
              <p>{problem}</p>
            </div>
          ),
      )}
      {relays.map(
        ({ socket, sessions, session_count: all }) =>
          all > sessions.length && (
            <p class="note">{`${socket} has ${all} sessions; ${sessions.length} are shown.`}</p>
          ),
      )}
      <SessionTable rows={rows} chosen={named} />
      {chosen && <SessionView session={chosen} />}
    </>
  );
}

function keyOf({ socket, name }: Row): string {
  return `${socket} ${name}`;
}

function SessionTable({ rows, chosen }: { rows: readonly Row[]; chosen: string | null }) {
  const number = (
    key: string,
    head: string,
    value: (row: Row) => number | null,
    shown: (value: number | null) => string = count,
  ): Column<Row> => ({
    key,
    head,
    isNumber: true,
    cell: (row) => shown(value(row)),
    order: (row) => value(row) ?? -1,
  });
  return (
    <Table
      id="sessions"
      caption="Sessions of relays"
      columns={[
        {
          key: "name",
          head: "Relay at the other end",
          cell: (row) => (
            <a href={changed({ relay: keyOf(row) })}>{row.name === "" ? "not named" : row.name}</a>
          ),
          order: ({ name }) => name,
        },
        {
          key: "state",
          head: "State",
          cell: (row) => <State {...sessionHealth(row)} />,
          order: (row) => sessionHealth(row).text,
        },
        {
          key: "from",
          head: "From",
          cell: ({ transport, address }) =>
            [transport, address].filter((part) => part).join(" ") || "–",
          order: ({ address }) => address ?? "",
        },
        number(
          "rtt",
          "Round trip",
          ({ rtt_us: rtt }) => (rtt === null ? null : rtt / 1000),
          (ms) => milliseconds(ms),
        ),
        number("lost", "Packets lost", (row) => row.lost_packets),
        number("again", "Reconnects", (row) => row.reconnects),
        number("resumed", "Resumed", (row) => row.resumptions),
        number("shed", "Packet-ins shed", (row) => row.packet_ins_shed),
        number("waits", "Waits", waiting, (value) => bytes(value)),
        number("channels", "Channels", (row) => row.channels.length),
      ]}
      rows={rows}
      rowKey={keyOf}
      isChosen={(row) => keyOf(row) === chosen}
      empty="No relay has a session now."
    />
  );
}
