// One switch on a packet's path: the entries that take it, and what they do.

import type { ComponentChildren } from "preact";
import type { Condition, EntryStep, GuestPart, Hop, Step } from "../documents/trace";
import { type Tone, State } from "../parts/state";
import { count } from "../units";

interface Properties {
  readonly hop: Hop;
  readonly place: number;
  /** The step that decides where the packet ends, if it is one of this switch. */
  readonly decides: number | null;
  readonly tone: Tone;
}

export function HopCard({ hop, place, decides, tone }: Properties) {
  const deciding = decidingSteps(hop, decides);
  const partial = hop.is_partial ? ", those that can match" : "";
  return (
    <li class="hop" id={`hop-${place}`}>
      <h3>
        <span class="number">{place + 1}</span>
        <a href={`/switch/${hop.dpid}`}>{hop.dpid}</a>
        <span class="note">{`enters at port ${hop.in_port}; ${hop.entry_count} entries${partial}`}</span>
      </h3>
      {hop.problem && (
        <p>
          <State tone="warn" text={hop.problem} />
        </p>
      )}
      <ol class="steps">
        {hop.steps.map((step, at) => (
          <li class={deciding.includes(at) ? `decides ${tone}` : undefined}>
            {at === deciding[0] && <strong class="flag">decides</strong>}
            <StepText step={step} />
          </li>
        ))}
      </ol>
    </li>
  );
}

/** The end of the packet's path, and the entry that leads there. */
function decidingSteps(hop: Hop, decides: number | null): number[] {
  if (decides === null) return [];
  const entry = hop.steps.slice(0, decides + 1).findLastIndex(({ kind }) => kind === "entry");
  return hop.steps[decides]?.kind === "drop" && entry >= 0 ? [entry, decides] : [decides];
}

function StepText({ step }: { step: Step }) {
  switch (step.kind) {
    case "entry":
      return <Entry entry={step} />;
    case "miss":
      return <Line what={table(step)} text="no entry matches" />;
    case "meter":
      return <Line what={`meter ${step.meter}${ofGuest(step)}`} text="limits the rate" />;
    case "set":
      return <Line what="rewrites" text={`${step.field}: ${step.from} → ${step.to}`} />;
    case "group": {
      const chosen = step.buckets.map((bucket) => bucket + 1).join(", ");
      const by = step.is_by_hash ? "the switch's hash chooses of" : "takes";
      const text = `${step.group_type}, ${by} bucket ${chosen} (${step.bucket_count} in all)`;
      return <Line what={`group ${step.group}${ofGuest(step)}`} text={text} />;
    }
    case "output": {
      const queue = step.queue == null ? "" : `, queue ${step.queue}`;
      return <Line what={`port ${step.port}${queue}`} text={<To step={step} />} when={step.if} />;
    }
    case "controller":
      return <Line what="to the controller" text={step.text} when={step.if} tone="info" />;
    case "drop": {
      const text = `${step.text} (${step.reason})`;
      return <Line what="dropped" text={text} when={step.if} tone="bad" />;
    }
  }
}

function To({ step }: { step: Extract<Step, { kind: "output" }> }) {
  const { to } = step;
  if (to.kind === "switch" && to.hop !== undefined) {
    return (
      <>
        → hop{" "}
        <a href={`#hop-${to.hop}`} data-plain>
          {to.hop + 1}
        </a>
        {`, at ${to.at}`}
      </>
    );
  }
  if (to.kind === "host") {
    return <>{to.is_destination ? "→ the destination's port" : "→ another host's port"}</>;
  }
  return <>{to.text ?? "leads nowhere"}</>;
}

interface LineProperties {
  readonly what: string;
  readonly text: ComponentChildren;
  readonly when?: Condition[];
  readonly tone?: Tone;
}

function Line({ what, text, when = [], tone }: LineProperties) {
  const conditions = when.map(({ group, bucket }) => `group ${group} takes bucket ${bucket + 1}`);
  return (
    <p class="line">
      {tone ? <State tone={tone} text={what} /> : <b>{what}</b>} {text}
      {conditions.length > 0 && <span class="note">{` if ${conditions.join(" and ")}`}</span>}
    </p>
  );
}

function ofGuest({ guest }: { guest: GuestPart | null }): string {
  return guest ? `, ${guest.number} of guest ${guest.name}` : "";
}

function table(step: { table: number; table_name: string | null }): string {
  return `table ${step.table}${step.table_name ? ` ${step.table_name}` : ""}`;
}

function Entry({ entry }: { entry: EntryStep }) {
  const { owner, packets, packets_later: later } = entry;
  const moved = later != null && packets != null ? `, ${count(later)} later` : "";
  return (
    <div class="entry">
      <p class="line">
        <b>{table(entry)}</b>
        {` ${owner.text}`}
        {owner.name && (
          <>
            {" "}
            (<b>{owner.name}</b>)
          </>
        )}
      </p>
      <code class="wrap">
        {`priority=${entry.priority}${entry.match ? `,${entry.match}` : ""} `}
        <span class="actions">{`actions=${entry.actions === "" ? "drop" : entry.actions}`}</span>
      </code>
      <p class="note">
        {`${count(packets)} packets${moved}`}
        {entry.is_counting != null && (entry.is_counting ? ", counting now" : ", not counting now")}
        {`, cookie ${entry.cookie}`}
      </p>
      {entry.doubt && <p class="doubt">{entry.doubt}</p>}
    </div>
  );
}
