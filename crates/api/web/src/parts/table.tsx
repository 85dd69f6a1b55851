// Tables that can be sorted and turned over, with their state in the URL.

import type { ComponentChildren } from "preact";
import { changed, go, useAddress } from "../address";

export interface Column<Row> {
  readonly key: string;
  readonly head: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** What rows are sorted by; a column without it has no order. */
  readonly order?: (row: Row) => number | string;
  readonly isNumber?: boolean;
}

interface Properties<Row> {
  /** Names the table, and its parameters in the URL. */
  readonly id: string;
  readonly caption: string;
  readonly columns: Column<Row>[];
  readonly rows: readonly Row[];
  readonly rowKey: (row: Row) => string;
  readonly isChosen?: (row: Row) => boolean;
  readonly empty: string;
  readonly pageSize?: number;
}

export function Table<Row>(properties: Properties<Row>) {
  const { id, caption, columns, rows, rowKey, isChosen, empty } = properties;
  const size = properties.pageSize ?? 50;
  const { parameters } = useAddress();
  const stated = parameters.get(`${id}.sort`) ?? "";
  const isDown = stated.startsWith("-");
  const by = columns.find((column) => column.key === stated.replace(/^-/, "") && column.order);
  const sorted = by ? [...rows].sort(comparison(by, isDown)) : rows;
  const last = Math.max(0, Math.ceil(rows.length / size) - 1);
  const page = Math.min(last, Math.max(0, Number(parameters.get(`${id}.page`) ?? 1) - 1 || 0));
  const shown = sorted.slice(page * size, (page + 1) * size);
  if (rows.length === 0) return <p class="empty">{empty}</p>;
  const toggle = (key: string) => {
    const next = by?.key !== key ? key : isDown ? undefined : `-${key}`;
    go(changed({ [`${id}.sort`]: next, [`${id}.page`]: undefined }), true);
  };
  return (
    <div class="table" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption>{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                scope="col"
                class={column.isNumber ? "number" : undefined}
                aria-sort={by === column ? (isDown ? "descending" : "ascending") : undefined}
              >
                {column.order ? (
                  <button type="button" onClick={() => toggle(column.key)}>
                    {column.head}
                    <span aria-hidden="true">{by !== column ? "" : isDown ? " ↓" : " ↑"}</span>
                  </button>
                ) : (
                  column.head
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={rowKey(row)} class={isChosen?.(row) ? "chosen" : undefined}>
              {columns.map((column, place) => {
                const kind = column.isNumber ? "number" : undefined;
                return place === 0 ? (
                  <th scope="row" class={kind}>
                    {column.cell(row)}
                  </th>
                ) : (
                  <td class={kind}>{column.cell(row)}</td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {last > 0 && <Pages id={id} page={page} last={last} count={rows.length} />}
    </div>
  );
}

function comparison<Row>(column: Column<Row>, isDown: boolean) {
  const sign = isDown ? -1 : 1;
  return (one: Row, other: Row): number => {
    const [a, b] = [column.order!(one), column.order!(other)];
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
  };
}

function Pages(properties: { id: string; page: number; last: number; count: number }) {
  const { id, page, last, count } = properties;
  const to = (next: number) => go(changed({ [`${id}.page`]: next > 0 ? next + 1 : undefined }));
  return (
    <div class="pages">
      <button type="button" disabled={page === 0} onClick={() => to(page - 1)}>
        Previous
      </button>
      <span>{`Page ${page + 1} of ${last + 1}, ${count} rows`}</span>
      <button type="button" disabled={page === last} onClick={() => to(page + 1)}>
        Next
      </button>
    </div>
  );
}
