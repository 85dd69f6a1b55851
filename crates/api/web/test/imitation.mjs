// An API that shows a network which is not there: many switches in little time. The page is that of
// dist/, as the program has it.

import { createServer } from "node:http";
import { readFileSync } from "node:fs";

const KINDS = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
const POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; object-src 'none'";

function dpid(n) {
  return n.toString(16).padStart(16, "0");
}

/**
 * `clusters` rings of `size` switches with chords, each joined to some others; the same each time.
 * With `name` they have names.
 */
export function network({ clusters, size, chords, name }) {
  const links = [];
  const used = new Map();
  const port = (n) => {
    used.set(n, (used.get(n) ?? 0) + 1);
    return `${dpid(n)}:${used.get(n)}`;
  };
  const join = (a, b) => {
    const state = { is_usable: true, is_drained: false, is_doubted: false, is_narrow: false };
    const flow = (load) => ({ bps: Math.round(load * 1e9), load });
    const [there, back] = [flow(((a * 7) % 97) / 100), flow(((b * 3) % 50) / 100)];
    links.push({
      ...{ from: port(a), to: port(b), speed_bps: 1e9, there, back },
      ...{ ...state, is_stated: null },
    });
  };
  const at = (cluster, place) => 1 + (cluster % clusters) * size + (place % size);
  for (let cluster = 0; cluster < clusters; cluster += 1) {
    for (let place = 0; place < size; place += 1) {
      join(at(cluster, place), at(cluster, place + 1));
      for (let chord = 0; chord < chords; chord += 1) {
        join(at(cluster, place), at(cluster, place + 2 + ((place * 5 + chord * 3) % (size - 4))));
      }
    }
    for (const [n, step] of [1, 2, 5].entries()) join(at(cluster, n), at(cluster + step, n));
  }
  const switches = Array.from({ length: clusters * size }, (_, place) => {
    const n = place + 1;
    const isAway = n % 101 === 0;
    const ports = Array.from({ length: used.get(n) ?? 0 }, (_, p) => ({
      ...{
        number: p + 1,
        port: `${dpid(n)}:${p + 1}`,
        name: `p${p + 1}`,
        hw_addr: "02:00:00:00:00:01",
      },
      ...{ is_up: true, role: "link", speed_bps: 1e9, host_count: 0, rates: null },
    }));
    return {
      ...{ dpid: dpid(n), name: name?.(Math.floor(place / size), place % size) ?? null, ports },
      ...{ is_connected: !isAway, role: isAway ? "away" : "serving", version: "1.3" },
      ...{
        software: "emulated",
        hardware: null,
        address: "127.0.0.1:1",
        transport: "tcp",
        tls: null,
      },
      ...{ up_s: 60, host_count: 10, flow_count: 5 },
    };
  });
  return {
    ...{ seq: 1, is_compared: false, differences: [], rates_age_s: 1, missing_links: [] },
    ...{ host_count: 10 * switches.length, switches, links },
  };
}

/**
 * Serves documents by path, and the page at all others; closes with `close`. A document that is put
 * takes the place of the one there, if the client has seen that: by `tags`.
 */
export async function serve(documents) {
  const tags = {};
  let revision = 1;
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    if (request.method === "PUT") {
      const { "if-match": seen } = request.headers;
      if (seen !== tags[pathname]) {
        response.writeHead(412, { "content-type": "application/problem+json" });
        response.end(JSON.stringify({ detail: "it is not as If-Match says" }));
        return;
      }
      let body = "";
      for await (const part of request) body += part;
      documents[pathname] = JSON.parse(body);
      revision += 1;
      tags[pathname] = `"${revision}"`;
    }
    if (/^\/v1\/(events|live)/.test(pathname)) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(":\n\n");
      const tables = { links: {}, channels: {}, ports: {}, tables: {} };
      const first = { seq: 1, is_snapshot: true, is_last: true, ...tables };
      if (pathname === "/v1/live") response.write(`data: ${JSON.stringify(first)}\n\n`);
      return;
    }
    const document = documents[pathname];
    if (document !== undefined || pathname === "/healthz") {
      const tag = tags[pathname] === undefined ? {} : { etag: tags[pathname] };
      response.writeHead(200, { "content-type": "application/json", ...tag });
      response.end(JSON.stringify(document ?? {}));
      return;
    }
    const isFile = /^\/(app|icon)\.(js|css|svg)$/.test(pathname);
    const file = isFile ? pathname.slice(1) : "index.html";
    response.writeHead(200, {
      ...{ "content-type": `${KINDS[file.split(".").at(-1)]}; charset=utf-8` },
      ...{ "content-encoding": "gzip", "content-security-policy": POLICY },
    });
    response.end(readFileSync(new URL(`../dist/${file}.gz`, import.meta.url)));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { address: `http://127.0.0.1:${server.address().port}`, close, documents, tags };
}
