// In the place of the views, for whoever the controller does not know.

import { useEffect, useRef, useState } from "preact/hooks";
import { Form } from "../parts/form";
import { Problem, read } from "../request";
import { type Refusal, type Who, isToken, signIn } from "../session";

const TITLES: Record<number, string> = {
  0: "Not answered",
  401: "Wrong token",
  403: "Not allowed",
  429: "Too many wrong tokens",
};

export function SignIn({ refusal }: { refusal: Refusal }) {
  const isFirst = !refusal.hasToken && refusal.status === 401;
  const [wrong, setWrong] = useState<Problem | null>(() =>
    isFirst ? null : new Problem(refusal.status, refusal.message),
  );
  const [isAsking, setIsAsking] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async ({ token = "" }: Record<string, string>) => {
    if (isAsking) return;
    setIsAsking(true);
    setWrong(null);
    try {
      if (!isToken(token)) throw new Problem(401, "a token is one word of plain ASCII");
      signIn(token, await read<Who>("/v1/access", undefined, token));
    } catch (error) {
      setWrong(error instanceof Problem ? error : new Problem(0, String(error)));
      setIsAsking(false);
      field.current?.select();
    }
  };
  return (
    <>
      <h1>Sign in</h1>
      <p>This controller answers its users only.</p>
      {isFirst && <p class="note">{`It says: ${refusal.message}`}</p>}
      <Form class="question sign-in" values={{ token: "" }} submit={submit}>
        <label>
          <span>Token</span>
          <input
            ref={field}
            name="token"
            type="password"
            autocomplete="off"
            required
            aria-invalid={wrong ? "true" : undefined}
            aria-describedby={wrong ? "wrong" : undefined}
          />
        </label>
        <button type="submit" class="main" aria-disabled={isAsking ? "true" : undefined}>
          Sign in
        </button>
      </Form>
      {wrong && (
        <div class="trouble" role="alert" id="wrong">
          <strong>{TITLES[wrong.status] ?? `Status ${wrong.status}`}</strong>
          <p>{wrong.message}</p>
        </div>
      )}
    </>
  );
}
