// The groups of a large network and the places of all its switches: found once, then kept.

import { useEffect, useMemo, useState } from "preact/hooks";
import { type Group, type Grouping, OTHERS, grouped, groupName, numbered } from "./groups";
import { GROUPS, MEMBERS, type Place, type Places, load, save } from "./kept";
import { saved, savedFor } from "./saved";
import { radius, seed, spreadGroups, spreadMembers } from "./spread";

type Pairs = readonly (readonly [string, string])[];
type NameOf = (id: string) => string | null;

/** Groups stay as they are while so many of the switches are in one. */
const KNOWN_MIN = 0.9;
const SAVE_MS = 200;

/** A group's disc on the map. */
export interface Disc extends Place {
  readonly group: Group;
  readonly r: number;
}

export interface Discs {
  readonly discs: readonly Disc[];
  /** The place of each switch. */
  readonly places: Places;
  readonly of: ReadonlyMap<string, number>;
  readonly putGroup: (group: number, place: Place) => void;
  readonly putSwitch: (id: string, place: Place) => void;
  readonly anew: () => void;
  /** Takes these in the place of what is laid out. */
  readonly use: (places: Places) => void;
}

class Store {
  /** Centres of groups. */
  centres = load(GROUPS);
  /** Switches from the centre of their group, by both. */
  members = load(MEMBERS);
  /** Switches on the map, for groups that have no place here yet. */
  offered: Places = new Map();
  /** The group of each switch that was seen. */
  #names = new Map(
    [...this.members.keys()].map((key) => {
      const at = key.lastIndexOf(" ");
      return [key.slice(at + 1), key.slice(0, at)];
    }),
  );
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Soon, and once for all that is put meanwhile. */
  save(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      save(GROUPS, this.centres);
      save(MEMBERS, this.members);
    }, SAVE_MS);
  }

  forget(): void {
    this.centres = new Map();
    this.members = new Map();
    this.#names = new Map();
    this.save();
  }

  /**
   * Puts groups that have no place where the offered places of their switches are; whether there
   * are any.
   */
  fill({ groups }: Grouping): boolean {
    let isChanged = false;
    for (const { id, members } of groups) {
      const placed = members.filter((member) => this.offered.has(member));
      if (this.centres.has(id) || placed.length === 0) continue;
      const mean = (of: (place: Place) => number) =>
        placed.reduce((sum, member) => sum + of(this.offered.get(member)!), 0) / placed.length;
      const [x, y] = [mean((place) => place.x), mean((place) => place.y)];
      this.centres.set(id, { x, y });
      for (const member of placed) {
        const place = this.offered.get(member)!;
        this.members.set(keyOf(id, member), { x: place.x - x, y: place.y - y });
      }
      isChanged = true;
    }
    return isChanged;
  }

  isKnown(ids: readonly string[]): boolean {
    return ids.filter((id) => this.#names.has(id)).length >= ids.length * KNOWN_MIN;
  }

  group(ids: readonly string[], nameOf: NameOf, pairs: Pairs): Grouping {
    const isKnown = this.isKnown(ids);
    const grouping = isKnown
      ? continued(this.#names, ids, nameOf, pairs)
      : grouped(ids, nameOf, pairs);
    // What a filter leaves out comes back into its group.
    if (!isKnown) this.#names = new Map();
    for (const { id, members } of grouping.groups) {
      for (const member of members) this.#names.set(member, id);
    }
    return grouping;
  }
}

/** The same groups, with new switches in that of the neighbour that comes first. */
function continued(
  last: ReadonlyMap<string, string>,
  ids: readonly string[],
  nameOf: NameOf,
  pairs: Pairs,
): Grouping {
  const beside = new Map<string, string>();
  for (const [a, b] of pairs) {
    for (const [one, other] of [
      [a, b],
      [b, a],
    ] as const) {
      const group = last.get(other);
      if (group !== undefined && !beside.has(one)) beside.set(one, group);
    }
  }
  const members = new Map<string, string[]>();
  for (const id of [...ids].sort()) {
    const group = last.get(id) ?? beside.get(id) ?? OTHERS;
    const list = members.get(group);
    if (list) list.push(id);
    else members.set(group, [id]);
  }
  const groups = [...members].map(([id, of]) => ({ id, name: groupName(id, nameOf), members: of }));
  return numbered(groups);
}

const store = new Store();
saved.follow(() => (store.offered = savedFor(true)));

function keyOf(group: string, id: string): string {
  return `${group} ${id}`;
}

/** Discs of all switches; null until they are laid out. */
export function useDiscs(ids: readonly string[], nameOf: NameOf, pairs: Pairs): Discs | null {
  const [turn, setTurn] = useState(0);
  const [forgotten, setForgotten] = useState(0);
  const again = () => setTurn((turn) => turn + 1);
  const key = ids.join();
  const [found, setFound] = useState(0);
  const current = useMemo(
    () => (store.isKnown(ids) ? store.group(ids, nameOf, pairs) : null),
    [key, forgotten, found],
  );
  useEffect(() => {
    if (!current) {
      // Groups of a large network take a while to find: first the rest of the page is drawn.
      const timer = setTimeout(() => {
        store.group(ids, nameOf, pairs);
        setFound((times) => times + 1);
      });
      return () => clearTimeout(timer);
    }
    const gone = new AbortController();
    void lay(current, pairs, gone.signal, again);
    return () => gone.abort();
  }, [current, key]);
  const discs = useMemo(() => {
    const isLaid = current?.groups.every(({ id }) => store.centres.has(id));
    if (!current || !isLaid) return null;
    return current.groups.map((group): Disc => {
      return { group, r: radius(group.members.length), ...store.centres.get(group.id)! };
    });
  }, [current, turn]);
  const layAgain = (offered: Places) => {
    store.forget();
    store.offered = offered;
    setForgotten((times) => times + 1);
  };
  const places = useMemo(() => (discs ? placesOf(discs) : null), [discs, turn]);
  if (!current || !discs || !places) return null;
  return {
    discs,
    places,
    of: current.of,
    putGroup: (group, place) => {
      store.centres.set(current.groups[group]!.id, place);
      store.save();
      again();
    },
    putSwitch: (id, { x, y }) => {
      const disc = discs[current.of.get(id)!]!;
      store.members.set(keyOf(disc.group.id, id), { x: x - disc.x, y: y - disc.y });
      store.save();
      again();
    },
    anew: () => layAgain(new Map()),
    use: layAgain,
  };
}

/** Lays out what has no place: first the groups, so that they are drawn, then their switches. */
async function lay(
  grouping: Grouping,
  pairs: Pairs,
  signal: AbortSignal,
  changed: () => void,
): Promise<void> {
  const { groups } = grouping;
  if (store.fill(grouping)) changed();
  if (groups.some(({ id }) => !store.centres.has(id))) {
    const centres = await spreadGroups(grouping, pairs, store.centres, signal);
    if (!centres) return;
    for (const [place, { id }] of groups.entries()) store.centres.set(id, centres[place]!);
    changed();
  }
  const inner: [string, string][][] = groups.map(() => []);
  for (const [a, b] of pairs) {
    const of = grouping.of.get(a);
    if (of !== undefined && of === grouping.of.get(b)) inner[of]!.push([a, b]);
  }
  for (const [place, { id, members }] of groups.entries()) {
    const missing = members.filter((member) => !store.members.has(keyOf(id, member)));
    if (missing.length === 0) continue;
    if (missing.length === members.length) {
      const found = await spreadMembers(members, inner[place]!, signal);
      if (!found) return;
      for (const [at, member] of members.entries()) {
        store.members.set(keyOf(id, member), found[at]!);
      }
    } else {
      // The others stay where they are.
      for (const member of missing) {
        const at = seed(members.indexOf(member), members.length);
        store.members.set(keyOf(id, member), at);
      }
    }
    changed();
  }
  store.save();
}

function placesOf(discs: readonly Disc[]): Map<string, Place> {
  const places = new Map<string, Place>();
  for (const { group, x, y } of discs) {
    for (const [at, member] of group.members.entries()) {
      const from = store.members.get(keyOf(group.id, member)) ?? seed(at, group.members.length);
      places.set(member, { x: x + from.x, y: y + from.y });
    }
  }
  return places;
}
