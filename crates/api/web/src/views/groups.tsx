// The groups of a large network as a table.

import { useMemo } from "preact/hooks";
import { changed } from "../address";
import type { LinkRow, Switch } from "../documents/network";
import { portParts } from "../documents/network";
import { type Health, greatestLoad } from "../health";
import type { Disc } from "../map/discs";
import { faultOf } from "../map/group-map";
import type { DrawnLink } from "../map/map";
import { State } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { count, percent } from "../units";

interface Properties {
  readonly discs: readonly Disc[];
  readonly of: ReadonlyMap<string, number>;
  readonly switches: readonly Switch[];
  readonly links: readonly DrawnLink[];
  readonly loads: ReadonlyMap<string, LinkRow>;
  readonly health: (of: Switch) => Health;
  readonly chosen: string | null;
}

interface Row {
  readonly id: string;
  readonly name: string;
  readonly healths: Health[];
  hosts: number;
  within: number;
  out: number;
  load: number | null;
}

export function GroupTable({ discs, of, switches, links, loads, health, chosen }: Properties) {
  const ends = useMemo(
    () => links.map(({ from, to }) => [from, to].map((end) => of.get(portParts(end).dpid) ?? -1)),
    [links, of],
  );
  const rows = discs.map(({ group: { id, name } }): Row => {
    return { id, name, healths: [], hosts: 0, within: 0, out: 0, load: null };
  });
  for (const one of switches) {
    const row = rows[of.get(one.dpid) ?? -1];
    row?.healths.push(health(one));
    if (row) row.hosts += one.host_count;
  }
  for (const [place, { key, link }] of links.entries()) {
    const [from, to] = ends[place]!;
    const row = loads.get(key) ?? link;
    const load = row ? greatestLoad(row) : null;
    for (const at of new Set([from, to])) {
      const group = rows[at ?? -1];
      if (!group) continue;
      if (from === to) group.within += 1;
      else group.out += 1;
      if (load !== null) group.load = Math.max(group.load ?? 0, load);
    }
  }
  const fault = (row: Row) => faultOf(row.healths);
  const columns: Column<Row>[] = [
    {
      key: "name",
      head: "Group",
      cell: ({ id, name }) => (
        <a href={changed({ group: id, "switches.page": undefined, "links.page": undefined })}>
          {name}
        </a>
      ),
      order: ({ name }) => name,
    },
    {
      key: "state",
      head: "State",
      cell: (row) => <State tone={fault(row).tone} text={fault(row).text || "all connected"} />,
      order: (row) => fault(row).text,
    },
    {
      key: "switches",
      head: "Switches",
      isNumber: true,
      cell: ({ healths }) => healths.length,
      order: ({ healths }) => healths.length,
    },
    {
      key: "hosts",
      head: "Hosts",
      isNumber: true,
      cell: ({ hosts }) => count(hosts),
      order: ({ hosts }) => hosts,
    },
    {
      key: "within",
      head: "Links within",
      isNumber: true,
      cell: ({ within }) => within,
      order: ({ within }) => within,
    },
    {
      key: "out",
      head: "Links to others",
      isNumber: true,
      cell: ({ out }) => out,
      order: ({ out }) => out,
    },
    {
      key: "load",
      head: "Highest load",
      isNumber: true,
      cell: ({ load }) => percent(load),
      order: ({ load }) => load ?? -1,
    },
  ];
  return (
    <Table
      id="groups"
      caption="Groups"
      columns={columns}
      rows={rows}
      rowKey={({ id }) => id}
      isChosen={({ id }) => id === chosen}
      empty="There is no group."
      pageSize={20}
    />
  );
}
