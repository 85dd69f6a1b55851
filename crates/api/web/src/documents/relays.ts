// The document of GET /v1/relays.

export interface Relays {
  relays: Relay[];
}

export interface Relay {
  socket: string;
  problem: string | null;
  session_count: number;
  sessions: Session[];
}

export interface Session {
  name: string;
  address: string | null;
  transport: string | null;
  is_up: boolean;
  order: string;
  rtt_us: number | null;
  lost_packets: number;
  sessions: number;
  reconnects: number;
  resumptions: number;
  failovers: number;
  channels_closed: number;
  packet_ins_shed: number;
  carriers: { code_point: number | null; rtt_us: number; lost_packets: number }[];
  policy: { algorithm: string; queues: RelayQueue[] } | null;
  policy_map: { generation: number; is_in_sync: boolean | null } | null;
  channels: Channel[];
}

export interface RelayQueue {
  queue: number;
  messages_out: number;
  bytes_out: number;
  messages_waiting: number;
  bytes_waiting: number;
  shed_duplicate: number;
  shed_stale: number;
  shed_full: number;
}

interface Counted {
  count: number;
  bytes: number;
}

export interface Channel {
  channel: number;
  agent: string;
  unit: string;
  taken: Counted;
  given: Counted;
  lanes_out: Record<string, number>;
  lanes_in: Record<string, number>;
  shed: Counted;
  queued_count: number;
  queued_bytes: number;
  kept_bytes: number;
  held_count: number;
}
