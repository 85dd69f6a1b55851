// Documents of GET /v1/queues, /v1/services, /v1/policies, /v1/circuits and /v1/state.

export interface Layers<T> {
  file: T[];
  api: T[];
}

export interface Circuit {
  name: string;
  from: string;
  to: string;
  service: string | null;
  rate: string | null;
  queue: number | string | null;
  priority: number;
}

export interface Policy {
  name: string;
  service: string;
  priority: number;
  queue: number | string | null;
  meter: { rate: string } | null;
  mark: number | null;
  drop: boolean;
}

export interface Service {
  name: string;
  src: string | null;
  dst: string | null;
  proto: number | string | null;
  src_port: number | null;
  dst_port: number | null;
  dscp: number | null;
  vlan: number | null;
}

export interface PortQueues {
  at: string | null;
  rate: string;
  queues: {
    number: number;
    class: string | null;
    min: string | null;
    max: string | null;
    priority: number;
  }[];
}

interface Count {
  packets: number;
  bytes: number;
}

export interface QosState {
  queues: Record<string, { state: string; reasons: string[] }>;
  policies: Record<
    string,
    { state: string; seen_ago_s: number | null; reasons: string[]; switches: Record<string, Count> }
  >;
  circuits: Record<
    string,
    {
      state: string;
      seen_ago_s: number | null;
      reasons: string[];
      hops: { dpid: string; in_port: number; out_port: number }[];
      sent: Count;
      answered: Count;
    }
  >;
}
