// A value that views follow.

import { useEffect, useState } from "preact/hooks";

export class Cell<T> {
  readonly #followers = new Set<() => void>();

  constructor(private value: T) {}

  get(): T {
    return this.value;
  }

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const follower of [...this.#followers]) follower();
  }

  follow(follower: () => void): () => void {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }
}

export function useCell<T>(cell: Cell<T>): T {
  const [, setTurn] = useState(0);
  useEffect(() => cell.follow(() => setTurn((turn) => turn + 1)), [cell]);
  return cell.get();
}
