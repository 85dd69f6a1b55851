// Questions to the API, and its problem documents (RFC 9457).

import { useEffect, useState } from "preact/hooks";
import { refused, token } from "./session";

/** An answer that is not the document that was asked for. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly fields: { field: string; detail: string }[] = [],
  ) {
    super(message);
  }
}

/** Longer than the server's own bound, so that the server says first what is wrong. */
export const WAIT_MS = 25_000;

/** Every request of the page is sent here, with the user's token. */
export async function send(
  path: string,
  accept: string,
  signal: AbortSignal,
  change: RequestInit = {},
  by = token(),
): Promise<Response> {
  const headers = new Headers(change.headers);
  headers.set("accept", accept);
  if (by !== null) headers.set("authorization", `Bearer ${by}`);
  const response = await fetch(path, { ...change, headers, signal });
  if (response.ok) return response;
  const problem = await problemOf(response);
  // Whoever may not change something may still read.
  const isForbidden = change.method !== undefined && problem.status === 403;
  if (!isForbidden) refused(by, problem.status, problem.message);
  throw problem;
}

export async function read<T>(path: string, signal?: AbortSignal, by = token()): Promise<T> {
  const bound = AbortSignal.timeout(WAIT_MS);
  const either = signal ? AbortSignal.any([signal, bound]) : bound;
  try {
    const response = await send(path, "application/json", either, {}, by);
    return (await response.json()) as T;
  } catch (error) {
    if (signal?.aborted || error instanceof Problem) throw error;
    throw new Problem(0, "the controller does not answer");
  }
}

async function problemOf(response: Response): Promise<Problem> {
  const document = await response.json().catch(() => null);
  const detail = document?.detail ?? document?.title ?? `status ${response.status}`;
  const errors: unknown[] = Array.isArray(document?.errors) ? document.errors : [];
  const fields = errors.map((entry) => {
    const { field, pointer, detail } = entry as Record<string, unknown>;
    return { field: String(field ?? pointer ?? ""), detail: String(detail ?? "") };
  });
  return new Problem(response.status, String(detail), fields);
}

export interface Answer<T> {
  readonly document?: T;
  readonly problem?: Problem;
  readonly isLoading: boolean;
}

/**
 * The document at a path, asked for again when the path or `turn` changes and, if stated, after
 * each period. The last document stays while a new one is on its way.
 */
export function useDocument<T>(path: string | null, turn?: unknown, periodMs = 0): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { path?: string | null }>({ isLoading: true });
  useEffect(() => {
    if (path === null) {
      setAnswer({ isLoading: false });
      return;
    }
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async () => {
      try {
        const document = await read<T>(path, gone.signal);
        if (!gone.signal.aborted) setAnswer({ document, isLoading: false, path });
      } catch (error) {
        if (gone.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem(0, String(error));
        setAnswer((last) => {
          const document = last.path === path ? last.document : undefined;
          return { document, problem, isLoading: false, path };
        });
      }
      if (periodMs > 0 && !gone.signal.aborted) timer = setTimeout(again, periodMs);
    };
    const again = () => {
      if (document.hidden) timer = setTimeout(again, periodMs);
      else void ask();
    };
    setAnswer((last) => (last.path === path ? last : { isLoading: true }));
    void ask();
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [path, turn, periodMs]);
  return answer;
}
