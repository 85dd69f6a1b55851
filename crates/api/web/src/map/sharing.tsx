// Places for everyone: to save those of this map, and to use those that are saved.

import { useState } from "preact/hooks";
import { useCell } from "../cell";
import { Problem } from "../request";
import { user } from "../session";
import type { Places } from "./kept";
import { readSaved, save, saved, savedFor } from "./saved";

/** The answer to a change of what is not as it was read. */
const PRECONDITION_FAILED = 412;

interface Properties {
  readonly isGrouped: boolean;
  /** The places of all switches. */
  readonly places: () => Places | null;
  readonly use: (places: Places) => void;
}

export function Sharing({ isGrouped, places, use }: Properties) {
  const tag = useCell(saved)?.tag ?? null;
  const [text, setText] = useState("");
  /** The version that this page has used, saved, or found when it was opened. */
  const [known, setKnown] = useState(tag);
  const isNews = tag !== null && tag !== known;
  const write = async () => {
    const all = places();
    if (!all) return;
    setText("Saving …");
    try {
      await save(all);
      setKnown(saved.get()?.tag ?? null);
      setText(`Saved for everyone: ${all.size} switches.`);
    } catch (error) {
      const { status, message } = error as Problem;
      if (status === PRECONDITION_FAILED) await readSaved();
      const isStale = status === PRECONDITION_FAILED;
      setText(isStale ? "Somebody else has saved places. Save again to replace them." : message);
    }
  };
  const read = () => {
    use(savedFor(isGrouped));
    setKnown(tag);
    setText("");
  };
  return (
    <div class="places">
      {useCell(user)?.role !== "read" && (
        <button type="button" onClick={write}>
          Save for everyone
        </button>
      )}
      {savedFor(isGrouped).size > 0 && (
        <button type="button" onClick={read}>
          Use saved places
        </button>
      )}
      <span role="status">{text || (isNews ? "Somebody has saved new places." : "")}</span>
    </div>
  );
}
