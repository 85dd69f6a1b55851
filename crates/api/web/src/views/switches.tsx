// All switches as a table, on the map's page and as a view of its own.

import { href } from "../address";
import { useCell } from "../cell";
import type { ChannelRow, Switch } from "../documents/network";
import { type Health, channelHealth } from "../health";
import { useLive } from "../live";
import { network } from "../network";
import { Commands } from "../parts/commands";
import { State } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { count, duration, milliseconds } from "../units";

/** Of more switches than fit on a page of the table, those with a fault come first. */
const SORTED_FROM = 50;

interface Properties {
  readonly switches: readonly Switch[];
  readonly channels: ReadonlyMap<string, ChannelRow>;
  readonly chosen: string | null;
  readonly hasNeighbours?: boolean;
}

export function SwitchTable({ switches, channels, chosen, hasNeighbours }: Properties) {
  const row = (of: Switch) => channels.get(of.dpid);
  const state = (of: Switch) => channelHealth(of, row(of));
  const rows = switches.length > SORTED_FROM ? worstFirst(switches, state) : switches;
  const columns: Column<Switch>[] = [
    {
      key: "dpid",
      head: "Switch",
      cell: ({ dpid, name }) => <a href={`/switch/${dpid}`}>{name ? `${name} (${dpid})` : dpid}</a>,
      order: ({ dpid, name }) => name ?? dpid,
    },
    {
      key: "state",
      head: "Channel",
      cell: (of) => <State {...state(of)} />,
      order: (of) => state(of).text,
    },
    {
      key: "echo",
      head: "Echo",
      isNumber: true,
      cell: (of) => milliseconds(row(of)?.echo_rtt_ms),
      order: (of) => row(of)?.echo_rtt_ms ?? -1,
    },
    {
      key: "shed",
      head: "Shed",
      isNumber: true,
      cell: (of) => count(row(of)?.packet_ins_shed),
      order: (of) => row(of)?.packet_ins_shed ?? -1,
    },
    {
      key: "transport",
      head: "Transport",
      cell: ({ transport, tls }) => [transport ?? "–", tls].filter((part) => part).join(" "),
      order: ({ transport }) => transport ?? "",
    },
    {
      key: "software",
      head: "Software",
      cell: ({ software }) => software ?? "–",
      order: ({ software }) => software ?? "",
    },
    {
      key: "ports",
      head: "Ports",
      isNumber: true,
      cell: ({ ports }) => ports.length,
      order: ({ ports }) => ports.length,
    },
    {
      key: "hosts",
      head: "Hosts",
      isNumber: true,
      cell: (of) => count(of.host_count),
      order: (of) => of.host_count,
    },
    {
      key: "entries",
      head: "Entries",
      isNumber: true,
      cell: (of) => count(of.flow_count),
      order: (of) => of.flow_count,
    },
    {
      key: "up",
      head: "Up for",
      isNumber: true,
      cell: (of) => duration(of.up_s),
      order: (of) => of.up_s ?? -1,
    },
  ];
  if (hasNeighbours) {
    columns.push({
      key: "near",
      head: "Map",
      cell: ({ dpid }) => (
        <a href={href("/", { near: dpid, switch: dpid })} aria-label={`Neighbours of ${dpid}`}>
          neighbours
        </a>
      ),
    });
  }
  return (
    <Table
      id="switches"
      caption="Switches"
      columns={columns}
      rows={rows}
      rowKey={({ dpid }) => dpid}
      isChosen={({ dpid }) => dpid === chosen}
      empty="No switch is connected. Point one at the controller: ovs-vsctl set-controller BRIDGE tcp:ADDRESS:6653"
    />
  );
}

/** The same order among switches of one state. */
function worstFirst(switches: readonly Switch[], state: (of: Switch) => Health): Switch[] {
  const rank = (of: Switch) => ["bad", "warn"].indexOf(state(of).tone);
  const ranked = switches.map((of) => ({ of, rank: (rank(of) + 3) % 3 }));
  return ranked.sort((one, other) => one.rank - other.rank).map(({ of }) => of);
}

export function Switches() {
  const { topology, problem } = useCell(network);
  const rows = useLive("channels");
  return (
    <>
      <h1>Switches</h1>
      {!topology && (problem ? <Trouble problem={problem} /> : <Loading what="the switches" />)}
      {topology && (
        <SwitchTable switches={topology.switches} channels={rows.channels} chosen={null} />
      )}
      <Commands paths={["/v1/switches"]} commands={[`auster top --once --api ${location.host}`]} />
    </>
  );
}
