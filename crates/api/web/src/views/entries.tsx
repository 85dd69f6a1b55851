// Flow entries of a switch, a page at a time from the server.

import { changed, go, href, useAddress } from "../address";
import { Form } from "../parts/form";
import { Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { useDocument } from "../request";
import { bytes, count, duration } from "../units";

interface Entry {
  table: number;
  priority: number;
  match: string;
  actions: string;
  cookie: string;
  packets: number;
  bytes: number;
  duration_s: number;
  idle_timeout_s: number;
  hard_timeout_s: number;
}

interface EntriesDocument {
  flow_count: number;
  flows: Entry[];
}

const PAGE = 50;

export function Entries({ dpid }: { dpid: string }) {
  const { parameters } = useAddress();
  const page = Math.max(0, Number(parameters.get("entries") ?? 1) - 1 || 0);
  const table = parameters.get("table") ?? "";
  const text = parameters.get("match") ?? "";
  const asked = { limit: PAGE, skip: page * PAGE || undefined, table, q: text };
  const path = href(`/v1/switches/${encodeURIComponent(dpid)}/flows`, asked);
  const { document, problem, isLoading } = useDocument<EntriesDocument>(path);
  const ask = (values: Record<string, string>) => go(changed({ ...values, entries: undefined }));
  const to = (next: number) => go(changed({ entries: next > 0 ? next + 1 : undefined }), true);
  const last = Math.max(0, Math.ceil((document?.flow_count ?? 0) / PAGE) - 1);
  return (
    <section aria-label="Entries">
      <Form class="filter" values={{ table, match: text }} submit={ask}>
        <label>
          <span>Table</span>
          <input name="table" inputMode="numeric" size={4} placeholder="all" />
        </label>
        <label>
          <span>Entry contains</span>
          <input name="match" placeholder="10.0.0.2, output:1, a cookie" />
        </label>
        <button type="submit">Show</button>
      </Form>
      <Trouble problem={problem} />
      {isLoading && !document && <Loading what="entries" />}
      {document && !problem && (
        <Table
          id="flows"
          caption={`Entries, ${count(document.flow_count)} that match`}
          columns={[
            { key: "table", head: "Table", isNumber: true, cell: (entry: Entry) => entry.table },
            { key: "priority", head: "Priority", isNumber: true, cell: ({ priority }) => priority },
            {
              key: "match",
              head: "Match",
              cell: ({ match }) => <code class="wrap">{match || "any"}</code>,
            },
            {
              key: "actions",
              head: "Actions",
              cell: ({ actions }) => <code class="wrap">{actions}</code>,
            },
            {
              key: "packets",
              head: "Packets",
              isNumber: true,
              cell: (entry) => count(entry.packets),
            },
            { key: "bytes", head: "Bytes", isNumber: true, cell: (entry) => bytes(entry.bytes) },
            {
              key: "age",
              head: "Age",
              isNumber: true,
              cell: (entry) => duration(entry.duration_s),
            },
            {
              key: "timeouts",
              head: "Idle, hard",
              cell: (entry) =>
                [entry.idle_timeout_s, entry.hard_timeout_s]
                  .map((s) => (s === 0 ? "–" : `${s} s`))
                  .join(", "),
            },
            { key: "cookie", head: "Cookie", cell: ({ cookie }) => <code>{cookie}</code> },
          ]}
          rows={document.flows}
          rowKey={(entry) => `${entry.table} ${entry.priority} ${entry.match} ${entry.cookie}`}
          pageSize={PAGE}
          empty="No entry matches."
        />
      )}
      {last > 0 && (
        <div class="pages">
          <button type="button" disabled={page === 0} onClick={() => to(page - 1)}>
            Previous
          </button>
          <span>{`Page ${page + 1} of ${last + 1}`}</span>
          <button type="button" disabled={page >= last} onClick={() => to(page + 1)}>
            Next
          </button>
        </div>
      )}
    </section>
  );
}
