// What a view shows, as commands for a terminal.

import { useRef, useState } from "preact/hooks";
import { token } from "../session";

interface Properties {
  /** Paths of the API. */
  readonly paths: readonly string[];
  /** The same by the command line of auster. */
  readonly commands?: readonly string[];
}

export function Commands({ paths, commands = [] }: Properties) {
  // The token is its user's secret: commands are shown to others, and kept by shells.
  const hasToken = token() !== null;
  const header = hasToken ? ' -H "Authorization: Bearer $TOKEN"' : "";
  const curls = paths.map((path) => `curl -s${header} '${location.origin}${quoted(path)}'`);
  const calls = commands.map((text) =>
    hasToken && text.includes(" --api ") ? `${text} --token-file FILE` : text,
  );
  return (
    <details class="commands">
      <summary>As curl or CLI</summary>
      {[...calls, ...curls].map((text) => (
        <Command key={text} text={text} />
      ))}
    </details>
  );
}

/** A single quote ends a word of the shell. */
function quoted(path: string): string {
  return path.replaceAll("'", "%27");
}

function Command({ text }: { text: string }) {
  const code = useRef<HTMLElement>(null);
  const [state, setState] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch {
      // A page that is not served to localhost or over TLS may not write there.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      setState("selected: copy it by the keyboard");
    }
  };
  return (
    <div class="command">
      <button type="button" onClick={copy} aria-label={`Copy: ${text}`}>
        Copy
      </button>
      <code ref={code}>{text}</code>
      <span role="status">{state}</span>
    </div>
  );
}
