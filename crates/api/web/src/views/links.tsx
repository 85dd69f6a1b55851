// Links as a table.

import type { LinkRow } from "../documents/network";
import { portParts } from "../documents/network";
import { greatestLoad, linkHealth } from "../health";
import type { DrawnLink } from "../map/map";
import { type Network, forgetLost, switchName } from "../network";
import { type Tone, State } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { percent, rate, timeOfDay } from "../units";

interface Properties {
  readonly links: readonly DrawnLink[];
  readonly loads: ReadonlyMap<string, LinkRow>;
  readonly lost: Network["lost"];
}

export function LinkTable({ links, loads, lost }: Properties) {
  const row = (link: DrawnLink): LinkRow | undefined =>
    link.kind === "there" ? (loads.get(link.key) ?? link.link) : undefined;
  const state = (link: DrawnLink): { tone: Tone; text: string } => {
    if (link.kind === "missing") return { tone: "bad", text: "not found" };
    const gone = lost.get(link.key);
    if (link.kind === "lost") {
      return { tone: "bad", text: gone ? `lost, seen last ${timeOfDay(gone.at)}` : "lost" };
    }
    return linkHealth(link.link!);
  };
  const flow = (flow: LinkRow["there"] | undefined) =>
    flow?.bps == null ? "–" : `${rate(flow.bps)}, ${percent(flow.load)}`;
  const columns: Column<DrawnLink>[] = [
    {
      key: "from",
      head: "From",
      cell: ({ from }) => <End port={from} />,
      order: ({ from }) => from,
    },
    { key: "to", head: "To", cell: ({ to }) => <End port={to} />, order: ({ to }) => to },
    {
      key: "state",
      head: "State",
      cell: (link) => <State {...state(link)} />,
      order: (link) => state(link).text,
    },
    {
      key: "there",
      head: "Forth",
      isNumber: true,
      cell: (link) => flow(row(link)?.there),
      order: (link) => row(link)?.there?.bps ?? -1,
    },
    {
      key: "back",
      head: "Back",
      isNumber: true,
      cell: (link) => flow(row(link)?.back),
      order: (link) => row(link)?.back?.bps ?? -1,
    },
    {
      key: "load",
      head: "Load",
      isNumber: true,
      cell: (link) => percent(row(link) ? greatestLoad(row(link)!) : null),
      order: (link) => (row(link) && greatestLoad(row(link)!)) ?? -1,
    },
    {
      key: "speed",
      head: "Speed",
      isNumber: true,
      cell: (link) => rate(link.link?.speed_bps),
      order: (link) => link.link?.speed_bps ?? -1,
    },
  ];
  return (
    <>
      <Table
        id="links"
        caption="Links"
        columns={columns}
        rows={links}
        rowKey={({ key }) => key}
        isChosen={({ kind }) => kind !== "there"}
        empty="No link is known. LLDP finds links a moment after their switches are connected."
      />
      {lost.size > 0 && (
        <button type="button" onClick={forgetLost}>
          Forget lost links
        </button>
      )}
    </>
  );
}

export function End({ port }: { port: string }) {
  const { dpid, number } = portParts(port);
  return (
    <span class="end">
      <a href={`/switch/${dpid}`}>{switchName(dpid)}</a>
      {` port ${number}`}
    </span>
  );
}
