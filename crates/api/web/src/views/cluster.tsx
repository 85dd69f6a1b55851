// "Cluster": the members, which of them serves, and the switches' roles here.

import { useCell } from "../cell";
import { network } from "../network";
import { Commands } from "../parts/commands";
import { State } from "../parts/state";
import { Table } from "../parts/table";
import { Loading, Trouble } from "../parts/trouble";
import { useDocument } from "../request";
import { count } from "../units";
import { Figures } from "./switch";
import { SwitchTable } from "./switches";
import { useLive } from "../live";

interface ClusterDocument {
  name: string;
  is_serving: boolean;
  peers: { name: string; is_heard: boolean }[];
  takeovers: number;
  yields: number;
  suspicions: number;
}

const EVERY_MS = 2000;

export function Cluster() {
  const { document, problem, isLoading } = useDocument<ClusterDocument>(
    "/v1/cluster",
    null,
    EVERY_MS,
  );
  const { topology } = useCell(network);
  const { channels } = useLive("channels");
  return (
    <>
      <h1>Cluster</h1>
      {isLoading && <Loading what="the cluster" />}
      {problem?.status === 404 ? (
        <p class="empty">
          This controller serves alone. With [cluster] in its configuration, several controllers
          connect to the same switches: one serves them, and another takes over when it fails.
        </p>
      ) : (
        <Trouble problem={problem} />
      )}
      {document && !problem && (
        <>
          <p class="summary">
            {`Member ${document.name} `}
            <State
              tone={document.is_serving ? "good" : "idle"}
              text={document.is_serving ? "serves" : "stands by"}
            />
          </p>
          <Figures
            figures={[
              ["Take-overs", count(document.takeovers)],
              ["Yields", count(document.yields)],
              ["Suspicions", count(document.suspicions)],
            ]}
          />
          <Table
            id="members"
            caption="Other members"
            columns={[
              { key: "name", head: "Member", cell: ({ name }) => name, order: ({ name }) => name },
              {
                key: "heard",
                head: "State",
                cell: ({ is_heard: is }) => (
                  <State tone={is ? "good" : "bad"} text={is ? "heard" : "not heard"} />
                ),
              },
            ]}
            rows={document.peers}
            rowKey={({ name }) => name}
            empty="No other member is known."
          />
          {topology && (
            <SwitchTable switches={topology.switches} channels={channels} chosen={null} />
          )}
        </>
      )}
      <Commands paths={["/v1/cluster"]} commands={["auster cluster status --config FILE"]} />
    </>
  );
}
