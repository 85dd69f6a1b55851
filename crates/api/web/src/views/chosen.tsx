// The switch that is chosen on the map: its ports, and its hosts when they are asked for.

import { useState } from "preact/hooks";
import { changed, href } from "../address";
import type { Switch } from "../documents/network";
import { portParts } from "../documents/network";
import { type Health, linkHealth } from "../health";
import type { DrawnLink } from "../map/map";
import { switchName } from "../network";
import { State } from "../parts/state";
import { shortDatapath } from "../units";
import { HostTable } from "./hosts";

interface Properties {
  readonly of: Switch;
  readonly links: readonly DrawnLink[];
  readonly health: Health;
}

export function Chosen({ of, links, health }: Properties) {
  const [hasHosts, setHasHosts] = useState(false);
  const own = links.filter(({ from, to }) =>
    [from, to].some((end) => portParts(end).dpid === of.dpid),
  );
  const name = of.name ?? shortDatapath(of.dpid);
  return (
    <section class="chosen-switch" aria-label={`Switch ${name}`}>
      <h2>
        {`Switch ${name} `}
        <State {...health} />
      </h2>
      <p class="note">
        <code>{of.dpid}</code>
        {of.software && ` ${of.software}`}
      </p>
      <ul class="ends">
        {own.map((link) => {
          const [here, there] =
            portParts(link.from).dpid === of.dpid ? [link.from, link.to] : [link.to, link.from];
          const state = link.kind === "there" ? linkHealth(link.link!) : null;
          return (
            <li>
              {`port ${portParts(here).number} to `}
              <a href={changed({ switch: portParts(there).dpid })}>
                {switchName(portParts(there).dpid)}
              </a>
              {` port ${portParts(there).number} `}
              {state ? <State {...state} /> : <State tone="bad" text={link.kind} />}
            </li>
          );
        })}
      </ul>
      <p class="actions">
        <a class="button" href={`/switch/${of.dpid}`}>
          Open
        </a>
        <a class="button" href={href("/events", { switch: of.dpid })}>
          Events
        </a>
        <button type="button" aria-expanded={hasHosts} onClick={() => setHasHosts(!hasHosts)}>
          {hasHosts ? "Hide hosts" : `Show hosts (${of.host_count})`}
        </button>
      </p>
      {hasHosts && <HostTable switchId={of.dpid} />}
    </section>
  );
}
