// A stream of the server (SSE) that is opened again whenever it ends, while the page is visible. A
// hidden page holds none: a browser opens six connections to a server for all its pages.
//
// It is not an EventSource, which cannot send a token nor see why it is refused.

import { Cell } from "./cell";
import { Problem, send } from "./request";

const WAITS_MS = [250, 500, 1000, 2000, 4000];
/** Three heartbeats of the server. */
const SILENCE_MS = 45_000;
/** Characters of a message that is under way. The server's are of 64 KiB at most. */
const MESSAGE_MAX = 2 ** 20;

/** Why the controller, which answers, opens no stream; null while it does. */
export const withheld = new Cell<string | null>(null);
const waiting = new Map<Stream, string>();

export class Stream {
  #gone: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  #isEnded = false;

  /** `path` is asked for at each opening, so that a stream goes on where the last one ended. */
  constructor(
    private readonly path: () => string,
    private readonly take: (document: unknown) => void,
    private readonly changed: (isOpen: boolean) => void,
  ) {
    document.addEventListener("visibilitychange", this.#seen);
    this.#open();
  }

  end(): void {
    this.#isEnded = true;
    document.removeEventListener("visibilitychange", this.#seen);
    this.#close();
    this.#withhold(undefined);
  }

  readonly #seen = (): void => {
    this.#close();
    this.#failures = 0;
    if (!document.hidden) this.#open();
  };

  #close(): void {
    clearTimeout(this.#timer);
    this.#gone?.abort();
    this.#gone = undefined;
  }

  #open(): void {
    if (this.#isEnded || document.hidden) return;
    const gone = new AbortController();
    this.#gone = gone;
    const failed = (error?: unknown) => {
      if (this.#gone !== gone) return;
      this.#close();
      const isWithheld = error instanceof Problem && error.status === 503;
      this.#withhold(isWithheld ? error.message : undefined);
      if (!isWithheld) this.changed(false);
      const wait = WAITS_MS[Math.min(this.#failures, WAITS_MS.length - 1)];
      this.#failures += 1;
      this.#timer = setTimeout(() => this.#open(), wait);
    };
    this.#read(gone).then(failed, failed);
  }

  /** Ends with the stream. */
  async #read(gone: AbortController): Promise<void> {
    this.#watch(gone);
    const response = await send(this.path(), "text/event-stream", gone.signal);
    if (this.#gone !== gone || !response.body) return;
    this.#failures = 0;
    this.#withhold(undefined);
    this.changed(true);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const messages = new Messages();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.#gone !== gone) return;
      this.#watch(gone);
      for (const message of messages.add(value)) {
        const read = parsed(message);
        if (read !== undefined) this.take(read);
        if (this.#gone !== gone) return;
      }
    }
  }

  /** Also a heartbeat shows that the server is there. */
  #watch(gone: AbortController): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => gone.abort(), SILENCE_MS);
  }

  #withhold(why: string | undefined): void {
    if (why === undefined) waiting.delete(this);
    else waiting.set(this, why);
    withheld.set([...waiting.values()][0] ?? null);
  }
}

/** The data of server-sent events. Their numbers are in their documents, too. */
class Messages {
  #rest = "";
  #data: string[] = [];
  #size = 0;

  *add(text: string): Generator<string> {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop()!;
    for (const line of lines) {
      const of = line.endsWith("\r") ? line.slice(0, -1) : line;
      if (of === "") {
        if (this.#data.length > 0) yield this.#data.join("\n");
        this.#data = [];
        this.#size = 0;
      } else if (of.startsWith("data:")) {
        this.#data.push(of.slice(of[5] === " " ? 6 : 5));
        this.#size += of.length;
      }
    }
    if (this.#rest.length + this.#size > MESSAGE_MAX) throw new Error("a message has no end");
  }
}

function parsed(message: string): unknown {
  try {
    return JSON.parse(message);
  } catch {
    return undefined;
  }
}
