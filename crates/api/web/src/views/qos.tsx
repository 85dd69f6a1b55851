// "QoS": queues, services, policies and circuits that are asked for, and how far they are.

import type { Circuit, Layers, Policy, PortQueues, QosState, Service } from "../documents/qos";
import { Commands } from "../parts/commands";
import { Progress, type Stated, both } from "../parts/progress";
import { Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { useDocument } from "../request";
import { count, duration } from "../units";
import { Circuits } from "./circuits";

const EVERY_MS = 3000;

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
