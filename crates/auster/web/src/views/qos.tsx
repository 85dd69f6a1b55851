// "QoS": queues, services, policies and circuits that are asked for, and how far they are.

import { useMemo } from "preact/hooks";
import { changed, useAddress } from "../address";
import { useCell } from "../cell";
import type { Switch } from "../documents/network";
import { linkKey } from "../documents/network";
import type { Circuit, Layers, Policy, PortQueues, QosState, Service } from "../documents/qos";
import { channelHealth } from "../health";
import { useLive } from "../live";
import { type DrawnLink, NetworkMap } from "../map/map";
import { network } from "../network";
import { Commands } from "../parts/commands";
import { type Tone, State } from "../parts/state";
import { Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { useDocument } from "../request";
import { count, duration } from "../units";

const EVERY_MS = 3000;
const DRAWN_MAX = 300;

const TONES: Record<string, Tone> = {
  active: "good",
  installed: "good",
  "in effect": "good",
  installing: "info",
  changing: "info",
  written: "info",
  waiting: "warn",
  "not in effect": "bad",
  failed: "bad",
};

export function Qos() {
  const state = useDocument<QosState>("/v1/state", null, EVERY_MS);
  const policies = useDocument<Layers<Policy>>("/v1/policies", null, EVERY_MS);
  const circuits = useDocument<Layers<Circuit>>("/v1/circuits", null, EVERY_MS);
  const services = useDocument<Layers<Service>>("/v1/services", null, EVERY_MS);
  const queues = useDocument<Layers<PortQueues>>("/v1/queues", null, EVERY_MS);
  const answers = [state, policies, circuits, services, queues];
  const problem = answers.find((answer) => answer.problem)?.problem;
  const isWhole = answers.every((answer) => answer.document);
  return (
    <>
      <h1>Quality of service</h1>
      <Trouble problem={problem} />
      {!isWhole && !problem && <Loading what="policies and circuits" />}
      {isWhole && (
        <>
          <Circuits circuits={both(circuits.document!)} state={state.document!} />
          <Policies policies={both(policies.document!)} state={state.document!} />
          <Services services={both(services.document!)} />
          <Queues ports={both(queues.document!)} state={state.document!} />
        </>
      )}
      <Commands
        paths={["/v1/state", "/v1/policies", "/v1/circuits", "/v1/verify"]}
        commands={[`auster qos show --api ${location.host}`]}
      />
    </>
  );
}

/** Where a row was stated. */
type Stated<T> = T & { readonly origin: string };

function both<T extends object>({ file, api }: Layers<T>): Stated<T>[] {
  const from = (origin: string) => (row: T) => ({ ...row, origin });
  return [...file.map(from("configuration")), ...api.map(from("API"))];
}

function Progress({ of }: { of: { state: string; reasons: string[] } | undefined }) {
  if (!of) return <>–</>;
  return (
    <>
      <State tone={TONES[of.state] ?? "idle"} text={of.state} />
      {of.reasons.map((reason) => (
        <p class="note">{reason}</p>
      ))}
    </>
  );
}

function Circuits({ circuits, state }: { circuits: Stated<Circuit>[]; state: QosState }) {
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

function Policies({ policies, state }: { policies: Stated<Policy>[]; state: QosState }) {
  const packets = (name: string) =>
    Object.values(state.policies[name]?.switches ?? {}).reduce((sum, of) => sum + of.packets, 0);
  return (
    <>
      <h2>Policies</h2>
      <Table
        id="policies"
        caption="Policies"
        columns={[
          { key: "name", head: "Policy", cell: ({ name }) => name, order: ({ name }) => name },
          {
            key: "state",
            head: "State",
            order: ({ name }) => state.policies[name]?.state ?? "",
            cell: ({ name }) => <Progress of={state.policies[name]} />,
          },
          {
            key: "service",
            head: "Service",
            cell: ({ service }) => service,
            order: ({ service }) => service,
          },
          { key: "does", head: "Does", cell: effect },
          {
            key: "packets",
            head: "Packets",
            isNumber: true,
            cell: ({ name }) => count(packets(name)),
            order: ({ name }) => packets(name),
          },
          {
            key: "seen",
            head: "Effect seen",
            isNumber: true,
            cell: ({ name }) => {
              const ago = state.policies[name]?.seen_ago_s;
              return ago == null ? "never" : `${duration(ago)} ago`;
            },
          },
          {
            key: "priority",
            head: "Priority",
            isNumber: true,
            cell: ({ priority }) => priority,
            order: ({ priority }) => priority,
          },
          { key: "origin", head: "Stated in", cell: ({ origin }) => origin },
        ]}
        rows={policies}
        rowKey={({ name }) => name}
        empty="No policy is asked for."
      />
    </>
  );
}

function effect({ queue, meter, mark, drop }: Policy): string {
  const parts = [
    drop ? "drops" : "",
    queue != null ? `queue ${queue}` : "",
    meter ? `at most ${meter.rate}` : "",
    mark != null ? `marks DSCP ${mark}` : "",
  ];
  return parts.filter((part) => part !== "").join(", ") || "counts";
}

function Services({ services }: { services: Stated<Service>[] }) {
  const match = (of: Service) =>
    [
      ["from", of.src],
      ["to", of.dst],
      ["proto", of.proto],
      ["sport", of.src_port],
      ["dport", of.dst_port],
      ["DSCP", of.dscp],
      ["VLAN", of.vlan],
    ]
      .filter(([, value]) => value != null)
      .map((pair) => pair.join(" "))
      .join(", ");
  return (
    <>
      <h2>Services</h2>
      <Table
        id="services"
        caption="Services"
        columns={[
          { key: "name", head: "Service", cell: ({ name }) => name, order: ({ name }) => name },
          { key: "match", head: "Packets", cell: (of) => match(of) || "all" },
          { key: "origin", head: "Stated in", cell: ({ origin }) => origin },
        ]}
        rows={services}
        rowKey={({ name }) => name}
        empty="No service is named."
      />
    </>
  );
}

function Queues({ ports, state }: { ports: Stated<PortQueues>[]; state: QosState }) {
  const at = (port: PortQueues) => port.at ?? "every port";
  return (
    <>
      <h2>Queues</h2>
      <Table
        id="queues"
        caption="Queues"
        columns={[
          { key: "at", head: "Port", cell: at, order: at },
          {
            key: "state",
            head: "State",
            cell: (port) => <Progress of={port.at ? state.queues[port.at] : undefined} />,
          },
          { key: "rate", head: "Rate", cell: ({ rate }) => rate },
          {
            key: "queues",
            head: "Queues",
            cell: ({ queues }) => (
              <ul class="plain">
                {queues.map(({ number, class: name, min, max, priority }) => (
                  <li>
                    {[
                      `${number}${name ? ` ${name}` : ""}:`,
                      min && `at least ${min}`,
                      max && `at most ${max}`,
                      `priority ${priority}`,
                    ]
                      .filter((part) => part)
                      .join(" ")}
                  </li>
                ))}
              </ul>
            ),
          },
          { key: "origin", head: "Stated in", cell: ({ origin }) => origin },
        ]}
        rows={ports}
        rowKey={(port) => `${port.origin} ${at(port)}`}
        empty="No queue is asked for."
      />
    </>
  );
}
