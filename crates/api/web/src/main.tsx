// The page: its views by address, and whether what it shows is up to date.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { followLinks, useAddress } from "./address";
import { useCell } from "./cell";
import { begin, staleSince } from "./network";
import { Boundary } from "./parts/boundary";
import { State } from "./parts/state";
import { refusal, signOut, token, user } from "./session";
import { withheld } from "./stream";
import "./style/tokens.css";
import "./style/page.css";
import "./style/parts.css";
import "./style/map.css";
import "./style/why.css";
import { duration } from "./units";
import { Channel } from "./views/channel";
import { Cluster } from "./views/cluster";
import { Events } from "./views/events";
import { Network } from "./views/network";
import { Qos } from "./views/qos";
import { SignIn } from "./views/sign-in";
import { SwitchView } from "./views/switch";
import { Switches } from "./views/switches";
import { Why } from "./views/why";

const VIEWS = [
  { path: "/", name: "Network", view: Network },
  { path: "/why", name: "Why", view: Why },
  { path: "/switches", name: "Switches", view: Switches },
  { path: "/qos", name: "QoS", view: Qos },
  { path: "/channel", name: "Channel", view: Channel },
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
  const asked = useCell(refusal);
  const name = dpid === null ? (entry?.name ?? "Not found") : `Switch ${dpid}`;
  const title = `${asked ? "Sign in" : name} – auster`;
  useEffect(() => {
    document.title = title;
  }, [title]);
  useEffect(() => {
    // A new view begins at its top, also for those who hear it.
    if (!isFirst.current && !asked) {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    isFirst.current = false;
  }, [path, asked === null]);
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
        {!asked && <Freshness />}
        <User />
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {asked ? (
          <SignIn refusal={asked} />
        ) : (
          <Boundary key={path}>{dpid === null ? <View /> : <SwitchView dpid={dpid} />}</Boundary>
        )}
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

/** Seen where the API has users. */
function User() {
  const who = useCell(user);
  if (who === null || who.kind === "local") return null;
  return (
    <div class="user">
      <span>{`${who.name}, ${who.role}`}</span>
      {token() !== null && (
        <button type="button" onClick={signOut}>
          Sign out
        </button>
      )}
    </div>
  );
}

function Freshness() {
  const since = useCell(staleSince);
  const why = useCell(withheld);
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
        {since !== null ? (
          <State tone="bad" text="stale: the controller does not answer" />
        ) : why !== null ? (
          <State tone="warn" text={`not live: ${why}`} />
        ) : (
          <State tone="good" text="live" />
        )}
      </span>
      {since !== null && <span class="note">{` for ${ago}`}</span>}
    </div>
  );
}

followLinks();
begin();
render(<Page />, document.getElementById("page")!);
