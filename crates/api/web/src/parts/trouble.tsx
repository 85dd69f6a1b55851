// What stands in the place of a document that is not there.

import type { Problem } from "../request";

export function Trouble({ problem }: { problem: Problem | undefined }) {
  if (!problem) return null;
  return (
    <div class="trouble" role="alert">
      <strong>{problem.status === 404 ? "Not found" : "Not answered"}</strong>
      <p>{problem.message}</p>
      {problem.fields.length > 0 && (
        <ul>
          {problem.fields.map(({ field, detail }) => (
            <li>
              {field === "" ? (
                detail
              ) : (
                <>
                  <code>{field}</code>: {detail}
                </>
              )}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return <p class="empty" role="status">{`Reading ${what} …`}</p>;
}
