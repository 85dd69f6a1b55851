// Who uses the page, where the API has users: a token, kept for this tab until it is closed.

import { Cell } from "./cell";

/** A user, as the controller knows it. */
export interface Who {
  readonly kind: string;
  readonly name: string;
  readonly role: string;
}

/** Why the controller does not answer who asks. */
export interface Refusal {
  readonly status: number;
  readonly message: string;
  readonly hasToken: boolean;
}

const KEY = "auster.token";
/** The most that the controller reads of one. */
const TOKEN_MAX = 256;
/** Answers to a request that is nobody's, or of somebody who may not ask at all. */
const REFUSALS = new Set([401, 403, 429]);

let kept = stored();

export const user = new Cell<Who | null>(null);
/** Set while the page asks for a token in the place of its views. */
export const refusal = new Cell<Refusal | null>(null);

/** What requests carry; null without users, or for a user who is known otherwise. */
export function token(): string | null {
  return kept;
}

/** Whether a header can carry it. */
export function isToken(text: string): boolean {
  return /^[\x21-\x7e]+$/.test(text) && text.length <= TOKEN_MAX;
}

/** After the controller has said whose the token is. */
export function signIn(by: string, who: Who): void {
  kept = by;
  try {
    sessionStorage.setItem(KEY, by);
  } catch {
    // A browser may keep nothing: then the token is asked for again at the next load.
  }
  user.set(who);
  refusal.set(null);
}

/** The page is loaded again, so that nothing stays of what this user has seen. */
export function signOut(): void {
  forget();
  location.reload();
}

/** Takes the answer to a request that carried `by`; another token may have come since. */
export function refused(by: string | null, status: number, message: string): void {
  if (!REFUSALS.has(status) || by !== kept || refusal.get() !== null) return;
  // A wrong token is sent once: the controller counts them.
  forget();
  user.set(null);
  refusal.set({ status, message, hasToken: by !== null });
}

function forget(): void {
  kept = null;
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing is kept.
  }
}

function stored(): string | null {
  try {
    const text = sessionStorage.getItem(KEY);
    return text !== null && isToken(text) ? text : null;
  } catch {
    return null;
  }
}
