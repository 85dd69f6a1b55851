// "Network": the map, what is chosen on it, and the same in tables.

import { useMemo } from "preact/hooks";
import { changed, go, useAddress } from "../address";
import { useCell } from "../cell";
import type { Switch, Topology } from "../documents/network";
import { linkKey, portParts } from "../documents/network";
import { channelHealth } from "../health";
import { useLive } from "../live";
import { GroupMap, useGroups } from "../map/group-map";
import { Legend } from "../map/legend";
import type { Places } from "../map/kept";
import { layout } from "../map/layout";
import { type DrawnLink, NetworkMap } from "../map/map";
import { DRAWN_MAX } from "../map/saved";
import { Sharing } from "../map/sharing";
import { type Network as Known, network } from "../network";
import { Commands } from "../parts/commands";
import { Loading, Trouble } from "../parts/trouble";
import { Chosen } from "./chosen";
import { GroupTable } from "./groups";
import { LinkTable } from "./links";
import { SwitchTable } from "./switches";

/** More than this are a table first, and what is asked for of them is drawn. */
const GROUPED_MAX = 5000;

export function Network() {
  const known = useCell(network);
  const { topology, problem } = known;
  if (!topology) {
    return (
      <>
        <h1>Network</h1>
        {problem ? <Trouble problem={problem} /> : <Loading what="the network" />}
      </>
    );
  }
  return <Overview known={known} topology={topology} />;
}

function Overview({ known, topology }: { known: Known; topology: Topology }) {
  const { parameters } = useAddress();
  const filter = parameters.get("q") ?? "";
  const chosen = parameters.get("switch");
  const near = parameters.get("near");
  const rows = useLive("links", "channels");
  const links = useMemo(() => drawnLinks(known, topology), [known]);
  const shown = useMemo(
    () => selected(topology.switches, links, filter, near),
    [topology, links, filter, near],
  );
  const ids = useMemo(() => new Set(shown.map(({ dpid }) => dpid)), [shown]);
  const shownLinks = useMemo(
    () => links.filter(({ from, to }) => [from, to].every((end) => ids.has(portParts(end).dpid))),
    [links, ids],
  );
  const isDrawn = shown.length > 0 && shown.length <= DRAWN_MAX;
  const isGrouped = shown.length > DRAWN_MAX && shown.length <= GROUPED_MAX;
  const discs = useGroups(shown, shownLinks, isGrouped);
  const group = isGrouped ? parameters.get("group") : null;
  const place = discs?.discs.findIndex(({ group: { id } }) => id === group) ?? -1;
  const listed = useMemo(
    () => (place < 0 ? null : shown.filter(({ dpid }) => discs!.of.get(dpid) === place)),
    [shown, discs?.of, place],
  );
  const groupName = discs?.discs[place]?.group.name ?? null;
  const listedLinks = useMemo(() => {
    if (!listed) return shownLinks;
    const own = new Set(listed.map(({ dpid }) => dpid));
    return shownLinks.filter(({ from, to }) =>
      [from, to].some((end) => own.has(portParts(end).dpid)),
    );
  }, [listed, shownLinks]);
  const health = (of: Switch) => channelHealth(of, rows.channels.get(of.dpid));
  const choose = (dpid: string | null) => go(changed({ switch: dpid ?? undefined }), true);
  const open = (id: string | null) => {
    const first = { "switches.page": undefined, "links.page": undefined };
    go(changed({ group: id ?? undefined, ...first }), true);
  };
  const chosenSwitch = topology.switches.find(({ dpid }) => dpid === chosen);
  const drawn = { switches: shown, links: shownLinks, loads: rows.links, health, chosen, choose };
  const isPicture = isDrawn || isGrouped;
  const own = {
    places: () => layout.get(topology.switches.map(({ dpid }) => dpid)),
    use: (places: Places) => layout.use(places),
  };
  const ofGroups = discs && { places: () => discs.places, use: discs.use };
  // Places are saved of all switches.
  const isWhole = shown.length === topology.switches.length;
  const shared = isWhole && (isDrawn ? own : ofGroups);
  return (
    <>
      <h1>Network</h1>
      <Summary known={known} topology={topology} />
      <Filter filter={filter} near={near} group={listed ? groupName : null} />
      <div class={chosenSwitch && isPicture ? "overview with-panel" : "overview"}>
        {isPicture ? (
          <div class="picture">
            {isDrawn && <NetworkMap {...drawn} />}
            {isGrouped && !discs && (
              <p class="map empty" role="status">
                Laying out the network …
              </p>
            )}
            {isGrouped && discs && <GroupMap {...drawn} group={group} open={open} discs={discs} />}
            <Legend isGrouped={isGrouped}>
              {shared && <Sharing key={isGrouped} isGrouped={isGrouped} {...shared} />}
            </Legend>
          </div>
        ) : (
          <p class="note">
            {shown.length === 0
              ? "No switch matches."
              : `${shown.length} switches are too many to read on a map. Filter them, or choose ` +
                "“neighbours” in the table to draw those around a switch."}
          </p>
        )}
        {chosenSwitch && <Chosen of={chosenSwitch} links={links} health={health(chosenSwitch)} />}
      </div>
      {topology.is_compared && <Differences all={topology.differences} />}
      {isGrouped && discs && <GroupTable {...drawn} {...discs} chosen={group} />}
      <SwitchTable
        switches={listed ?? shown}
        channels={rows.channels}
        chosen={chosen}
        hasNeighbours={topology.switches.length > DRAWN_MAX}
      />
      <LinkTable links={listedLinks} loads={rows.links} lost={known.lost} />
      <Commands
        paths={["/v1/topology", "/v1/live?views=links,channels"]}
        commands={[`auster top --once --api ${location.host}`]}
      />
    </>
  );
}

function Summary({ known, topology }: { known: Known; topology: Topology }) {
  const there = topology.switches.filter(({ is_connected: is }) => is).length;
  const away = topology.switches.length - there;
  const facts = [
    `${there} switch${there === 1 ? "" : "es"} connected`,
    away > 0 ? `${away} away` : "",
    `${topology.links.length} links`,
    known.lost.size > 0 ? `${known.lost.size} lost` : "",
    topology.missing_links.length > 0 ? `${topology.missing_links.length} not found` : "",
    `${topology.host_count} hosts`,
  ];
  return (
    <p class="summary" role="status">
      {facts.filter((fact) => fact !== "").join(" · ")}
    </p>
  );
}

interface Filters {
  readonly filter: string;
  readonly near: string | null;
  readonly group: string | null;
}

function Filter({ filter, near, group }: Filters) {
  const typed = (event: Event) => {
    const { value } = event.currentTarget as HTMLInputElement;
    go(changed({ q: value, near: undefined, "switches.page": undefined }), true);
  };
  return (
    <div class="filter">
      <label>
        <span>Filter switches</span>
        <input type="search" value={filter} onInput={typed} placeholder="name, number, software" />
      </label>
      {near && <a href={changed({ near: undefined })}>{`Neighbours of ${near}: show all`}</a>}
      {group && <a href={changed({ group: undefined })}>{`Group “${group}”: list all switches`}</a>}
    </div>
  );
}

function Differences({ all }: { all: readonly string[] }) {
  return (
    <section class="differences">
      <h2>Against the administrator's topology</h2>
      {all.length === 0 ? (
        <p>The network is as the file says.</p>
      ) : (
        <ul>
          {all.map((text) => (
            <li>{text}</li>
          ))}
        </ul>
      )}
    </section>
  );
}

function drawnLinks(known: Known, topology: Topology): DrawnLink[] {
  const there = topology.links.map((link): DrawnLink => {
    const { from, to } = link;
    return { key: linkKey(link), from, to, kind: "there", link };
  });
  const missing = topology.missing_links.map((ends): DrawnLink => {
    return { key: linkKey(ends), ...ends, kind: "missing" };
  });
  const isMissing = new Set(missing.map(({ key }) => key));
  const lost = [...known.lost].filter(([key]) => !isMissing.has(key));
  const gone = lost.map(([key, { link }]): DrawnLink => {
    return { key, from: link.from, to: link.to, kind: "lost", link };
  });
  return [...there, ...missing, ...gone];
}

/** Switches that match a filter, or that are joined to one of them. */
function selected(
  switches: readonly Switch[],
  links: readonly DrawnLink[],
  filter: string,
  near: string | null,
): Switch[] {
  if (near) {
    const ids = new Set([near]);
    for (const { from, to } of links) {
      const [a, b] = [portParts(from).dpid, portParts(to).dpid];
      if (a === near) ids.add(b);
      if (b === near) ids.add(a);
    }
    return switches.filter(({ dpid }) => ids.has(dpid));
  }
  const words = filter
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  if (words.length === 0) return [...switches];
  return switches.filter((of) => {
    const text = [of.dpid, of.name, of.software, of.hardware, of.address, of.role].join(" ");
    return words.every((word) => text.toLowerCase().includes(word));
  });
}
