// One switch: its channel, its ports with rates, its tables, entries and queues.

import { useMemo } from "preact/hooks";
import { changed, useAddress } from "../address";
import { useCell } from "../cell";
import type { Port, Switch, TableRow } from "../documents/network";
import { channelHealth } from "../health";
import { liveRows, useLive } from "../live";
import { network } from "../network";
import { Commands } from "../parts/commands";
import { type Tone, State } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { bytes, count, duration, milliseconds, rate, shortDatapath } from "../units";
import { Entries } from "./entries";
import { HostTable } from "./hosts";
import { PortPlot } from "./plot";
import { QueueTable } from "./queues";

export function SwitchView({ dpid }: { dpid: string }) {
  const { topology, problem } = useCell(network);
  const of = topology?.switches.find((of) => of.dpid === dpid);
  const path = `/v1/switches/${encodeURIComponent(dpid)}`;
  return (
    <>
      <h1>{`Switch ${of?.name ?? shortDatapath(dpid)}`}</h1>
      {!topology && (problem ? <Trouble problem={problem} /> : <Loading what="the network" />)}
      {topology && !of && (
        <div class="trouble" role="alert">
          <p>
            {`There is no switch ${dpid}. `}
            <a href="/switches">All switches</a>
          </p>
        </div>
      )}
      {of && <Details of={of} />}
      <Commands
        paths={[path, `${path}/ports`, `${path}/flows`, `${path}/queues`]}
        commands={[`auster events --follow --switch ${dpid} --api ${location.host}`]}
      />
    </>
  );
}

function Details({ of }: { of: Switch }) {
  const rows = useLive("ports", "tables", "channels");
  const { parameters } = useAddress();
  const channel = rows.channels.get(of.dpid);
  const table = rows.tables.get(of.dpid);
  const ports = of.ports.map((port) => ({ ...port, ...rows.ports.get(port.port) }));
  const stated = parameters.get("port");
  const first = useMemo(() => busiest(ports)?.port, [of.dpid, rows.ports.size > 0]);
  const plotted =
    ports.find(({ number }) => String(number) === stated) ??
    ports.find(({ port }) => port === first);
  const rates = (port: string) => liveRows().ports.get(port)?.rates ?? null;
  return (
    <>
      <p class="summary">
        <State {...channelHealth(of, channel)} />
        {` · ${of.dpid} · ${[of.hardware, of.software].filter((text) => text).join(" ")}`}
        {` · up ${duration(of.up_s)}`}
      </p>
      <h2>Channel</h2>
      <Figures
        figures={[
          ["Transport", [of.transport, of.tls].filter((text) => text).join(" ") || "–"],
          ["From", of.address ?? "–"],
          ["Version", of.version == null ? "–" : `OpenFlow ${of.version}`],
          ["Role", channel?.role ?? of.role],
          ["Echo", milliseconds(channel?.echo_rtt_ms)],
          ["Waits to be sent", bytes(channel?.outbox_bytes)],
          ["Waits to be read", count(channel?.inbox_backlog)],
          ["Packet-ins shed", count(channel?.packet_ins_shed)],
          ["Packet-outs shed", count(channel?.packet_outs_shed)],
          ["Messages in", count(channel?.messages_in)],
          ["Messages out", count(channel?.messages_out)],
        ]}
      />
      <h2>Ports</h2>
      {plotted && <PortPlot port={plotted.port} name={plotted.name} rates={rates} />}
      <PortTable ports={ports} plotted={plotted?.port} />
      <h2>Tables</h2>
      <Occupancy table={table} of={of} />
      <h2>Queues</h2>
      <QueueTable dpid={of.dpid} />
      <h2>Hosts</h2>
      <HostTable switchId={of.dpid} />
      <h2>Entries</h2>
      <Entries dpid={of.dpid} />
    </>
  );
}

function busiest(ports: readonly Port[]): Port | undefined {
  const sum = ({ rates }: Port) => (rates ? rates.rx_bps + rates.tx_bps : -1);
  return [...ports].sort((one, other) => sum(other) - sum(one) || one.number - other.number)[0];
}

export function Figures({ figures }: { figures: [string, string | number][] }) {
  return (
    <dl class="figures">
      {figures.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

const ROLES: Record<string, Tone> = { down: "bad", closed: "idle", silent: "warn", held: "info" };

function PortTable({ ports, plotted }: { ports: Port[]; plotted: string | undefined }) {
  const columns: Column<Port>[] = [
    {
      key: "number",
      head: "Port",
      cell: ({ number, name }) => (
        <a href={changed({ port: number })} aria-label={`Plot port ${number} ${name}`}>
          {`${number} ${name}`}
        </a>
      ),
      order: ({ number }) => number,
    },
    {
      key: "role",
      head: "Role",
      cell: ({ role, is_up }) => (
        <State tone={is_up ? (ROLES[role] ?? "good") : "bad"} text={is_up ? role : "down"} />
      ),
      order: ({ role }) => role,
    },
    {
      key: "rx",
      head: "Receives",
      isNumber: true,
      cell: ({ rates }) => rate(rates?.rx_bps),
      order: ({ rates }) => rates?.rx_bps ?? -1,
    },
    {
      key: "tx",
      head: "Sends",
      isNumber: true,
      cell: ({ rates }) => rate(rates?.tx_bps),
      order: ({ rates }) => rates?.tx_bps ?? -1,
    },
    {
      key: "errors",
      head: "Errors/s",
      isNumber: true,
      cell: ({ rates }) => count(rates?.errors_ps),
      order: ({ rates }) => rates?.errors_ps ?? -1,
    },
    {
      key: "drops",
      head: "Drops/s",
      isNumber: true,
      cell: ({ rates }) => count(rates?.drops_ps),
      order: ({ rates }) => rates?.drops_ps ?? -1,
    },
    {
      key: "speed",
      head: "Speed",
      isNumber: true,
      cell: ({ speed_bps }) => rate(speed_bps),
      order: ({ speed_bps }) => speed_bps ?? -1,
    },
    {
      key: "hosts",
      head: "Hosts",
      isNumber: true,
      cell: ({ host_count }) => host_count,
      order: ({ host_count }) => host_count,
    },
    { key: "address", head: "Address", cell: ({ hw_addr }) => <code>{hw_addr}</code> },
  ];
  return (
    <Table
      id="ports"
      caption="Ports"
      columns={columns}
      rows={ports}
      rowKey={({ port }) => port}
      isChosen={({ port }) => port === plotted}
      empty="The switch has no port."
    />
  );
}

function Occupancy({ table, of }: { table: TableRow | undefined; of: Switch }) {
  if (!table) {
    return <p class="note">{`${count(of.flow_count)} entries are the controller's.`}</p>;
  }
  const share = table.limit ? table.entries / table.limit : null;
  return (
    <>
      {share != null && (
        <label class="meter">
          {`${count(table.entries)} of ${count(table.limit)} entries `}
          <meter min={0} max={1} low={0.75} high={0.9} optimum={0} value={share} />
        </label>
      )}
      <Figures
        figures={[
          [
            table.entries == null ? "Entries of auster" : "Entries",
            count(table.entries ?? table.flow_count),
          ],
          ["Limit", table.limit == null ? "none" : count(table.limit)],
          ["Leases", count(table.leases)],
          ["Shared", count(table.coarse)],
          ["Misses", count(table.misses)],
          ["Renewals", count(table.renewals)],
          ["Evictions", count(table.evictions)],
          ["Table full", count(table.table_full)],
          ["No room", count(table.no_room)],
        ]}
      />
    </>
  );
}
