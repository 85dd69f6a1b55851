// The document of GET /v1/trace.

export interface Trace {
  packet: { in: string; eth_src: string; eth_dst: string; tag: number | null; text: string };
  src: TracedHost | null;
  dst: TracedHost | null;
  route: { text: string } | null;
  class: { name: string; forbids: boolean } | null;
  services: string[];
  policies: string[];
  circuits: string[];
  access: { is_allowed: boolean; text: string[] } | null;
  hops: Hop[];
  verdict: Verdict;
  waited_s: number;
}

export interface TracedHost {
  ip: string | null;
  mac: string | null;
  vlan: number | null;
  at: string | null;
  ips: string[];
  heard_s_ago: number | null;
  contested_by: string | null;
}

export interface Hop {
  dpid: string;
  in_port: string;
  entry_count: number;
  is_partial: boolean;
  problem: string | null;
  steps: Step[];
}

/** A bucket that the switch's hash must choose for a step to happen. */
export interface Condition {
  group: number;
  bucket: number;
}

export interface EntryStep {
  kind: "entry";
  table: number;
  table_name: string | null;
  priority: number;
  match: string;
  actions: string;
  cookie: string;
  owner: { kind: string; name: string | null; text: string };
  packets: number | null;
  bytes: number | null;
  packets_later: number | null;
  bytes_later: number | null;
  is_counting: boolean | null;
  doubt: string | null;
}

/** The guest of a group or a meter, and the number that it has for it. */
export interface GuestPart {
  name: string;
  number: number;
}

export type Step =
  | EntryStep
  | { kind: "miss"; table: number; table_name: string | null }
  | { kind: "meter"; meter: number; guest: GuestPart | null }
  | { kind: "set"; field: string; from: string; to: string }
  | {
      kind: "group";
      group: number;
      group_type: string;
      bucket_count: number;
      buckets: number[];
      is_by_hash: boolean;
      guest: GuestPart | null;
    }
  | {
      kind: "output";
      port: string;
      queue: number | null;
      if: Condition[];
      to: { kind: string; hop?: number; at?: string; is_destination?: boolean; text?: string };
    }
  | { kind: "controller"; reason: string; if: Condition[]; text: string }
  | { kind: "drop"; reason: string; if: Condition[]; text: string };

export interface Verdict {
  outcome: string;
  text: string;
  at: string | null;
  hop: number | null;
  step: number | null;
  also_to_controller: boolean;
  doubts: string[];
}
