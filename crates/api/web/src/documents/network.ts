// Documents of GET /v1/topology, /v1/hosts, /v1/live and /v1/events.

export interface Topology {
  seq: number;
  is_compared: boolean;
  differences: string[];
  host_count: number;
  rates_age_s: number | null;
  switches: Switch[];
  links: Link[];
  missing_links: Ends[];
}

export interface Switch {
  dpid: string;
  name: string | null;
  is_connected: boolean;
  role: string;
  version: string | null;
  software: string | null;
  hardware: string | null;
  address: string | null;
  transport: string | null;
  tls: string | null;
  up_s: number | null;
  host_count: number;
  flow_count: number;
  ports: Port[];
}

export interface Port extends PortRow {
  number: number;
  port: string;
  name: string;
  hw_addr: string;
}

export interface Rates {
  rx_bps: number;
  tx_bps: number;
  rx_pps: number;
  tx_pps: number;
  errors_ps: number;
  drops_ps: number;
}

export interface Ends {
  from: string;
  to: string;
}

export interface Link extends Ends, LinkRow {
  is_doubted: boolean;
  is_narrow: boolean;
  is_stated: boolean | null;
}

/** What a direction of a link carries. */
export interface Flow {
  bps: number;
  load: number | null;
}

/** Rows of the live stream. */
export interface LinkRow {
  speed_bps: number | null;
  is_usable: boolean;
  is_drained: boolean;
  there: Flow | null;
  back: Flow | null;
}

export interface PortRow {
  is_up: boolean;
  role: string;
  speed_bps: number | null;
  host_count: number;
  rates: Rates | null;
}

export interface TableRow {
  entries: number;
  limit: number | null;
  flow_count: number;
  leases: number;
  coarse: number;
  misses: number;
  renewals: number;
  evictions: number;
  table_full: number;
  no_room: number;
}

export interface ChannelRow {
  role: string;
  transport: string | null;
  tls: string | null;
  echo_rtt_ms: number | null;
  outbox_bytes: number;
  inbox_backlog: number;
  packet_ins_shed: number;
  packet_outs_shed: number;
  messages_in: number;
  messages_out: number;
}

export interface LiveRows {
  links: LinkRow;
  ports: PortRow;
  tables: TableRow;
  channels: ChannelRow;
}

export type LiveView = keyof LiveRows;

export type LiveDocument = { seq: number; is_snapshot: boolean; is_last: boolean } & {
  [View in LiveView]?: Record<string, LiveRows[View] | null>;
};

export interface Hosts {
  hosts: Host[];
  total: number;
  next: string | null;
}

export interface Host {
  mac: string;
  vlan: number;
  at: string;
  ips: string[];
  is_heard: boolean;
}

/** An event: its kind, and fields of its own. */
export interface NetworkEvent {
  readonly seq: number;
  readonly event: string;
  readonly time_s: number;
  readonly [field: string]: unknown;
}

/** Parts of a port's name, a switch and a number. */
export function portParts(port: string): { dpid: string; number: string } {
  const [dpid = "", number = ""] = port.split(":");
  return { dpid, number };
}

export function linkKey({ from, to }: Ends): string {
  return `${from} ${to}`;
}
