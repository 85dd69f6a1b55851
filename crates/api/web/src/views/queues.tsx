// The queues of a switch's ports, and what they have counted.

import { Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { useDocument } from "../request";
import { bytes, count } from "../units";

interface Queue {
  port: string;
  queue: number;
  tx_packets: number;
  tx_bytes: number;
  tx_errors: number;
}

const EVERY_MS = 5000;

export function QueueTable({ dpid }: { dpid: string }) {
  const path = `/v1/switches/${encodeURIComponent(dpid)}/queues`;
  const { document, problem, isLoading } = useDocument<{ queues: Queue[] }>(path, null, EVERY_MS);
  if (problem) return <Trouble problem={problem} />;
  if (isLoading || !document) return <Loading what="queues" />;
  return (
    <Table
      id="queues"
      caption="Queues"
      columns={[
        { key: "port", head: "Port", cell: (row: Queue) => row.port, order: (row) => row.port },
        {
          key: "queue",
          head: "Queue",
          isNumber: true,
          cell: (row) => row.queue,
          order: (row) => row.queue,
        },
        {
          key: "packets",
          head: "Sent packets",
          isNumber: true,
          cell: (row) => count(row.tx_packets),
          order: (row) => row.tx_packets,
        },
        {
          key: "bytes",
          head: "Sent",
          isNumber: true,
          cell: (row) => bytes(row.tx_bytes),
          order: (row) => row.tx_bytes,
        },
        {
          key: "drops",
          head: "No room",
          isNumber: true,
          cell: (row) => count(row.tx_errors),
          order: (row) => row.tx_errors,
        },
      ]}
      rows={document.queues}
      rowKey={(row) => `${row.port} ${row.queue}`}
      empty="No port has queues."
    />
  );
}
