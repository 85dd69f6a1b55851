// "Why": where a packet goes, hop by hop, and what decides it.

import { go, href, useAddress } from "../address";
import type { Trace, TracedHost } from "../documents/trace";
import { Commands } from "../parts/commands";
import { Form } from "../parts/form";
import { type Tone, State } from "../parts/state";
import { Loading, Trouble } from "../parts/trouble";
import { useDocument } from "../request";
import { duration } from "../units";
import { HopCard } from "./hop";

/** Parameters of the question, in the order of the form. */
const FIELDS = [
  { name: "src", label: "From", hint: "10.0.0.1 or a MAC", isNeeded: true },
  { name: "dst", label: "To", hint: "10.0.0.2 or a MAC", isNeeded: true },
  { name: "proto", label: "Protocol", hint: "tcp, udp, icmp, 89", list: "protocols" },
  { name: "sport", label: "Source port", hint: "any" },
  { name: "dport", label: "Destination port", hint: "5060" },
  { name: "vlan", label: "VLAN", hint: "the host's" },
  { name: "dscp", label: "DSCP", hint: "0" },
  { name: "in", label: "Enters at", hint: "the host's port" },
];

const TONES: Record<string, Tone> = {
  delivered: "good",
  dropped: "bad",
  loops: "bad",
  elsewhere: "bad",
  controller: "info",
  depends: "warn",
  unknown: "warn",
};

export function Why() {
  const { parameters } = useAddress();
  const asked: Record<string, string> = {};
  for (const { name } of FIELDS) asked[name] = parameters.get(name) ?? "";
  const isAsked = asked.src !== "" && asked.dst !== "";
  const path = isAsked ? href("/v1/trace", asked) : null;
  const turn = parameters.get("turn");
  const { document: trace, problem, isLoading } = useDocument<Trace>(path, turn);
  return (
    <>
      <h1>Why did this packet go there?</h1>
      <Question asked={asked} turn={Number(turn ?? 0)} />
      {isAsked && isLoading && <Loading what="the entries of the switches, twice in 2 s" />}
      {!isAsked && (
        <p class="empty">
          State two hosts. The answer names the entry of each switch that takes the packet, and the
          place and reason of its end.
        </p>
      )}
      <Trouble problem={problem} />
      {isAsked && !problem && trace && <Answer trace={trace} />}
      {path && <Commands paths={[path]} commands={[command(asked)]} />}
    </>
  );
}

function Question({ asked, turn }: { asked: Record<string, string>; turn: number }) {
  const ask = (values: Record<string, string>) => {
    // The same question again is asked anew.
    const isSame = FIELDS.every(({ name }) => values[name] === asked[name]);
    go(href("/why", isSame ? { ...values, turn: turn + 1 } : values), isSame);
  };
  return (
    <Form class="question" values={asked} submit={ask}>
      {FIELDS.map(({ name, label, hint, isNeeded, list }) => (
        <label>
          <span>{label}</span>
          <input
            name={name}
            placeholder={hint}
            required={isNeeded}
            list={list}
            autocomplete="off"
            spellcheck={false}
          />
        </label>
      ))}
      <datalist id="protocols">
        {["tcp", "udp", "icmp", "sctp"].map((name) => (
          <option value={name} />
        ))}
      </datalist>
      <button type="submit" class="main">
        Ask
      </button>
    </Form>
  );
}

function Answer({ trace }: { trace: Trace }) {
  const { verdict } = trace;
  const tone = TONES[verdict.outcome] ?? "warn";
  return (
    <section aria-label="Answer" class="answer">
      <div class={`verdict ${tone}`} role="status">
        <h2>
          <State tone={tone} text={verdict.outcome} />
        </h2>
        <p>{verdict.text}</p>
        {verdict.also_to_controller && <p>A copy goes to the controller.</p>}
        {verdict.doubts.map((doubt) => (
          <p class="doubt">{doubt}</p>
        ))}
      </div>
      <Facts trace={trace} />
      <h2>Hop by hop</h2>
      <p class="note">
        {trace.waited_s > 0
          ? `Counters were read twice, ${trace.waited_s} s apart.`
          : "Counters were read once."}
      </p>
      <ol class="hops">
        {trace.hops.map((hop, place) => {
          const decides = verdict.hop === place ? verdict.step : null;
          return <HopCard hop={hop} place={place} decides={decides} tone={tone} />;
        })}
      </ol>
    </section>
  );
}

function Facts({ trace }: { trace: Trace }) {
  const named = (names: string[]) => (names.length === 0 ? "none" : names.join(", "));
  const facts: [string, preact.ComponentChildren][] = [
    ["From", <Host host={trace.src} />],
    ["To", <Host host={trace.dst} />],
    ["Class", trace.class ? trace.class.name + (trace.class.forbids ? ", forbidden" : "") : "none"],
    ["Services", named(trace.services)],
    ["Policies", named(trace.policies)],
    ["Circuits", named(trace.circuits)],
  ];
  if (trace.route) facts.push(["Route", trace.route.text]);
  if (trace.access) facts.push(["Access", trace.access.text.join("; ")]);
  facts.push(["Packet", <code class="wrap">{trace.packet.text}</code>]);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Host({ host }: { host: TracedHost | null }) {
  if (!host) return <>not known</>;
  const [dpid, port] = (host.at ?? "").split(":");
  return (
    <>
      <code>{host.ip ?? host.mac}</code>
      {host.ip && host.mac ? (
        <>
          {" "}
          (<code>{host.mac}</code>)
        </>
      ) : null}
      {dpid ? (
        <>
          {" "}
          at <a href={`/switch/${dpid}`}>{dpid}</a>
          {` port ${port}`}
        </>
      ) : (
        ", place not known"
      )}
      {host.vlan != null && `, VLAN ${host.vlan}`}
      {host.heard_s_ago != null && `, heard ${duration(host.heard_s_ago)} ago`}
      {host.contested_by && (
        <>
          , <State tone="bad" text={`contested by ${host.contested_by}`} />
        </>
      )}
    </>
  );
}

function command(asked: Record<string, string>): string {
  const word = (text: string) =>
    /^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "")}'`;
  const options = FIELDS.slice(2).filter(({ name }) => asked[name] !== "");
  const words = options.map(({ name }) => ` --${name} ${word(asked[name]!)}`);
  const api = ` --api ${location.host}`;
  return `auster trace ${word(asked.src!)} ${word(asked.dst!)}${words.join("")}${api}`;
}
