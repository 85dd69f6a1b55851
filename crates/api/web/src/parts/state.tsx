// A state in words, with a mark whose shape differs as well as its colour.

export type Tone = "good" | "warn" | "bad" | "idle" | "info";

const MARKS: Record<Tone, string> = { good: "●", warn: "▲", bad: "✕", idle: "○", info: "■" };

export function State({ tone, text }: { tone: Tone; text: string }) {
  return (
    <span class={`state ${tone}`}>
      <span aria-hidden="true" class="mark">
        {MARKS[tone]}
      </span>
      {text}
    </span>
  );
}
