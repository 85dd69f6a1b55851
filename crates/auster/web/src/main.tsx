// The page: its views by address, and whether what it shows is up to date.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { followLinks, useAddress } from "./address";
import { useCell } from "./cell";
import { begin, staleSince } from "./network";
import { Boundary } from "./parts/boundary";
import { State } from "./parts/state";
import "./style/tokens.css";
import "./style/page.css";
import "./style/parts.css";
import "./style/map.css";
import "./style/why.css";
import { duration } from "./units";
import { Cluster } from "./views/cluster";
import { Events } from "./views/events";
import { Network } from "./views/network";
import { Qos } from "./views/qos";
import { SwitchView } from "./views/switch";
import { Switches } from "./views/switches";
import { Why } from "./views/why";

const VIEWS = [
  { path: "/", name: "Network", view: Network },
  { path: "/why", name: "Why", view: Why },
  { path: "/switches", name: "Switches", view: Switches },
  { path: "/qos", name: "QoS", view: Qos },
  { path: "/events", name: "Events", view: Events },
  { path: "/cluster", name: "Cluster", view: Cluster },
];

const SWITCH = "/switch/";

function Page() {
  const { path } = useAddress();
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  const dpid = path.startsWith(SWITCH) ? decoded(path.slice(SWITCH.length)) : null;
  const entry = VIEWS.find((view) => view.path === (dpid === null ? path : "/switches"));
  useEffect(() => {
    document.title = `${dpid === null ? (entry?.name ?? "Not found") : `Switch ${dpid}`} – auster`;
    // A new view begins at its top, also for those who hear it.
    if (!isFirst.current) {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    isFirst.current = false;
  }, [path]);
  const View = entry?.view ?? NotFound;
  return (
    <>
      <a class="skip" href="#main" data-plain>
        Skip to the view
      </a>
      <header>
        <a class="brand" href="/">
          auster
        </a>
        <nav aria-label="Views">
          {VIEWS.map(({ path, name }) => (
            <a href={path} aria-current={entry?.path === path ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <Freshness />
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <Boundary key={path}>{dpid === null ? <View /> : <SwitchView dpid={dpid} />}</Boundary>
      </main>
    </>
  );
}

/** A path may hold anything after a percent sign. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function NotFound() {
  return (
    <>
      <h1>Not found</h1>
      <p>
        There is no such view. <a href="/">See the network</a>
      </p>
    </>
  );
}

function Freshness() {
  const since = useCell(staleSince);
  const [, setTurn] = useState(0);
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(() => setTurn((turn) => turn + 1), 1000);
    return () => clearInterval(timer);
  }, [since]);
  const ago = since === null ? "" : duration(Math.round((Date.now() - since) / 1000));
  return (
    <div class="freshness">
      <span role="status">
        {since === null ? (
          <State tone="good" text="live" />
        ) : (
          <State tone="bad" text="stale: the controller does not answer" />
        )}
      </span>
      {since !== null && <span class="note">{` for ${ago}`}</span>}
    </div>
  );
}

followLinks();
begin();
render(<Page />, document.getElementById("page")!);
