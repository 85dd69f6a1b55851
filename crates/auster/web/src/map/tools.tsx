// The buttons of a map.

import { useRef, useState } from "preact/hooks";
import { exported, imported } from "./kept";

interface Properties {
  readonly press: (key: string) => void;
  readonly fit: () => void;
  readonly anew: () => void;
}

export function Tools({ press, fit, anew }: Properties) {
  return (
    <div class="tools" role="group" aria-label="Map">
      <button type="button" onClick={() => press("+")} aria-label="Magnify">
        +
      </button>
      <button type="button" onClick={() => press("-")} aria-label="Shrink">
        −
      </button>
      <button type="button" onClick={fit}>
        Fit
      </button>
      <button
        type="button"
        onClick={() => {
          anew();
          fit();
        }}
      >
        Lay out again
      </button>
    </div>
  );
}

/** Places that somebody has chosen, for another browser. */
export function PlacesFile() {
  const field = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState("");
  const write = () => {
    const address = URL.createObjectURL(new Blob([exported()], { type: "application/json" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = "auster-places.json";
    link.click();
    URL.revokeObjectURL(address);
  };
  const read = async () => {
    const file = field.current?.files?.[0];
    if (!file) return;
    const why = await imported(file);
    if (why === null) location.reload();
    else setProblem(why);
  };
  return (
    <div class="places">
      <button type="button" onClick={write}>
        Save places
      </button>
      <button type="button" onClick={() => field.current?.click()}>
        Open places
      </button>
      <input
        ref={field}
        type="file"
        accept="application/json,.json"
        onChange={read}
        hidden
        aria-label="A file of places"
      />
      <span role="status">{problem}</span>
    </div>
  );
}
