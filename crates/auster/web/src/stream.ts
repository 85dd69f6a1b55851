// A stream of the server (SSE) that is opened again whenever it ends, while the page is visible. A
// hidden page holds none: a browser opens six connections to a server for all its pages.

const WAITS_MS = [250, 500, 1000, 2000, 4000];

export class Stream {
  #source: EventSource | undefined;
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
  }

  readonly #seen = (): void => {
    this.#close();
    this.#failures = 0;
    if (!document.hidden) this.#open();
  };

  #close(): void {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = undefined;
  }

  #open(): void {
    if (this.#isEnded || document.hidden) return;
    const source = new EventSource(this.path());
    this.#source = source;
    source.onopen = () => {
      this.#failures = 0;
      this.changed(true);
    };
    source.onmessage = (message) => {
      let read: unknown;
      try {
        read = JSON.parse(message.data as string);
      } catch {
        return;
      }
      this.take(read);
    };
    source.onerror = () => {
      if (this.#source !== source) return;
      this.#close();
      this.changed(false);
      const wait = WAITS_MS[Math.min(this.#failures, WAITS_MS.length - 1)];
      this.#failures += 1;
      this.#timer = setTimeout(() => this.#open(), wait);
    };
  }
}
