// Circuits, in a table and on the map.

import { useMemo } from "preact/hooks";
import { changed, useAddress } from "../address";
import { useCell } from "../cell";
import type { Switch } from "../documents/network";
import { linkKey } from "../documents/network";
import type { Circuit, QosState } from "../documents/qos";
import { channelHealth } from "../health";
import { useLive } from "../live";
import { type DrawnLink, NetworkMap } from "../map/map";
import { DRAWN_MAX } from "../map/saved";
import { network } from "../network";
import { Progress, type Stated } from "../parts/progress";
import { Table } from "../parts/table";
import { count, duration } from "../units";

export function Circuits({ circuits, state }: { circuits: Stated<Circuit>[]; state: QosState }) {
  const { parameters } = useAddress();
  const named = parameters.get("circuit") ?? circuits[0]?.name ?? "";
  const hops = state.circuits[named]?.hops ?? [];
  return (
    <>
      <h2>Circuits</h2>
      {circuits.length > 0 && <CircuitMap name={named} dpids={hops.map(({ dpid }) => dpid)} />}
      <Table
        id="circuits"
        caption="Circuits"
        columns={[
          {
            key: "name",
            head: "Circuit",
            order: ({ name }) => name,
            cell: ({ name }) => <a href={changed({ circuit: name })}>{name}</a>,
          },
          {
            key: "state",
            head: "State",
            order: ({ name }) => state.circuits[name]?.state ?? "",
            cell: ({ name }) => <Progress of={state.circuits[name]} />,
          },
          { key: "from", head: "From", cell: ({ from }) => from, order: ({ from }) => from },
          { key: "to", head: "To", cell: ({ to }) => to, order: ({ to }) => to },
          { key: "rate", head: "Rate", cell: ({ rate }) => rate ?? "–" },
          {
            key: "hops",
            head: "Hops",
            cell: ({ name }) =>
              (state.circuits[name]?.hops ?? [])
                .map(({ dpid, in_port: i, out_port: o }) => `${i}→${dpid.slice(-4)}→${o}`)
                .join(" ") || "–",
          },
          {
            key: "sent",
            head: "Sent",
            isNumber: true,
            cell: ({ name }) => count(state.circuits[name]?.sent.packets),
          },
          {
            key: "answered",
            head: "Answered",
            isNumber: true,
            cell: ({ name }) => count(state.circuits[name]?.answered.packets),
          },
          {
            key: "seen",
            head: "Effect seen",
            isNumber: true,
            cell: ({ name }) => {
              const ago = state.circuits[name]?.seen_ago_s;
              return ago == null ? "never" : `${duration(ago)} ago`;
            },
          },
          { key: "origin", head: "Stated in", cell: ({ origin }) => origin },
        ]}
        rows={circuits}
        rowKey={({ name }) => name}
        isChosen={({ name }) => name === named}
        empty="No circuit is asked for."
      />
    </>
  );
}

/** The circuit's switches on the map of the network. */
function CircuitMap({ name, dpids }: { name: string; dpids: string[] }) {
  const { topology } = useCell(network);
  const rows = useLive("links", "channels");
  const links = useMemo(
    () =>
      (topology?.links ?? []).map((link): DrawnLink => ({
        key: linkKey(link),
        from: link.from,
        to: link.to,
        kind: "there",
        link,
      })),
    [topology],
  );
  if (!topology || topology.switches.length > DRAWN_MAX) return null;
  const health = (of: Switch) => channelHealth(of, rows.channels.get(of.dpid));
  return (
    <figure class="picture small">
      <NetworkMap
        switches={topology.switches}
        links={links}
        loads={rows.links}
        health={health}
        chosen={null}
        choose={() => {}}
        marked={new Set(dpids)}
      />
      <figcaption>
        {dpids.length > 0 ? `${name} passes ${dpids.join(", ")}.` : `${name} has no path now.`}
      </figcaption>
    </figure>
  );
}
