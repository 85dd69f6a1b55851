// Hosts behind a switch, a page at a time from the server.

import { useState } from "preact/hooks";
import { href } from "../address";
import type { Host, Hosts } from "../documents/network";
import { portParts } from "../documents/network";
import { Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { useDocument } from "../request";

const PAGE = 25;

export function HostTable({ switchId }: { switchId: string }) {
  const [cursors, setCursors] = useState<string[]>([]);
  const after = cursors.at(-1);
  const path = href("/v1/hosts", { switch: switchId, limit: PAGE, after });
  const { document, problem, isLoading } = useDocument<Hosts>(path);
  if (problem) return <Trouble problem={problem} />;
  if (isLoading || !document) return <Loading what="hosts" />;
  const { hosts, total, next } = document;
  const first = hosts.length === 0 ? 0 : cursors.length * PAGE + 1;
  return (
    <>
      <Table
        id="hosts"
        caption={`Hosts, ${first} to ${cursors.length * PAGE + hosts.length} of ${total}`}
        columns={[
          { key: "mac", head: "Host", cell: (host: Host) => <code>{host.mac}</code> },
          { key: "ips", head: "Addresses", cell: ({ ips }) => ips.join(" ") || "–" },
          { key: "port", head: "Port", cell: ({ at }) => portParts(at).number },
          { key: "vlan", head: "VLAN", cell: ({ vlan }) => (vlan === 0 ? "–" : vlan) },
          {
            key: "why",
            head: "Why",
            cell: ({ mac, ips }) => (
              <a
                href={href("/why", { src: ips[0] ?? mac })}
                aria-label={`from here, ${ips[0] ?? mac}`}
              >
                from here
              </a>
            ),
          },
        ]}
        rows={hosts}
        rowKey={({ mac, vlan }) => `${mac}-${vlan}`}
        empty="No host is known here."
      />
      {(cursors.length > 0 || next !== null) && (
        <div class="pages">
          <button
            type="button"
            disabled={cursors.length === 0}
            onClick={() => setCursors(cursors.slice(0, -1))}
          >
            Previous
          </button>
          <button
            type="button"
            disabled={next === null}
            onClick={() => next !== null && setCursors([...cursors, next])}
          >
            Next
          </button>
        </div>
      )}
    </>
  );
}
