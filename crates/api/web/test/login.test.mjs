// Signing in, in Chromium, at an `auster run` whose API has users. `make test-web` runs it.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { WAIT_MS, launch, open, violations } from "./browser.mjs";
import { unreached } from "./keyboard.mjs";

const AUSTER = process.env.AUSTER ?? "../../../target/debug/auster";
/** The streams that the controller opens at most. */
const STREAMS_MAX = 32;
const WRONG = "nobody-has-this-token";

const folder = mkdtempSync(join(tmpdir(), "auster-login-"));
const tokens = join(folder, "tokens");
let address;
let controller;
let browser;
/** That of bob, who may read. */
let reader;

before(async () => {
  const [openflow, api] = [await freePort(), await freePort()];
  address = `http://127.0.0.1:${api}`;
  reader = add("bob", "read");
  const config = join(folder, "net.toml");
  writeFileSync(
    config,
    `[api]\nlisten = ["127.0.0.1:${api}"]\ntokens = ${JSON.stringify(tokens)}\n`,
  );
  const words = ["run", `ptcp:${openflow}`, "--config", config];
  controller = spawn(AUSTER, words, { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  controller.stderr.on("data", (more) => (said = (said + more).slice(-3000)));
  await until("auster run answers", async () => {
    assert.equal(controller.exitCode, null, said);
    const answer = await fetch(`${address}/healthz`).catch(() => null);
    return answer?.ok;
  });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  controller?.kill();
  rmSync(folder, { recursive: true });
});

/** The token of a new user. */
function add(name, role) {
  const words = ["api", "token", "add", name, "--role", role, "--file", tokens];
  return execFileSync(AUSTER, words, { encoding: "utf8" }).trim();
}

/** The controller has read its files again when `token` is known, or no longer. */
async function reload(token, status) {
  controller.kill("SIGHUP");
  const headers = { authorization: `Bearer ${token}` };
  await until(`a token has ${status}`, async () => {
    const answer = await fetch(`${address}/v1/access`, { headers });
    return answer.status === status;
  });
}

async function freePort() {
  const server = net.createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

async function until(what, is) {
  const end = Date.now() + WAIT_MS;
  while (!(await is())) {
    if (Date.now() > end) assert.fail(`not in ${WAIT_MS} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

async function on(path, options, body) {
  const { context, page, faults } = await open(browser, options, address);
  try {
    await page.goto(address + path);
    await body(page);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

async function enter(page, token) {
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
}

const alert = (page, text) => page.getByRole("alert").filter({ hasText: text }).waitFor();
const live = (page) => page.locator(".freshness .state.good").waitFor();

test("a user signs in by a token, and out", async () => {
  const token = add("alice", "operate");
  await reload(token, 200);
  await on("/events", {}, async (page) => {
    const streams = [];
    page.on("response", (response) => {
      if (/\/v1\/(events.*follow|live)/.test(response.url())) streams.push(response);
    });
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    assert.equal(await page.getByRole("heading", { name: "Events" }).count(), 0);
    assert.equal(await page.locator(".user").count(), 0);
    await enter(page, WRONG);
    await alert(page, "Wrong token");
    await enter(page, "no token");
    await alert(page, "one word");

    await enter(page, token);
    await page.getByText("alice, operate").waitFor();
    await page.getByRole("heading", { name: "Events" }).waitFor();
    await live(page);
    await until("a stream is open", () => streams.some((stream) => stream.status() === 200));
    const opened = streams.find((stream) => stream.status() === 200);
    assert.equal(await opened.request().headerValue("authorization"), `Bearer ${token}`);

    // What is copied has no secret in it, nor has the address.
    const commands = await page.locator("details.commands").textContent();
    assert.match(commands, /curl -s -H "Authorization: Bearer \$TOKEN" 'http/);
    assert.match(commands, /auster events .* --token-file FILE/);
    assert.ok(!(await page.content()).includes(token));
    assert.ok(!page.url().includes(token));

    // The tab keeps it, and another one does not have it.
    await page.reload();
    await page.getByText("alice, operate").waitFor();
    await live(page);
    const other = await page.context().newPage();
    await other.goto(address);
    await other.getByRole("heading", { name: "Sign in" }).waitFor();
    await other.close();

    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    assert.equal(await page.locator(".user").count(), 0);
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  });
});

test("a token that is taken away ends the views", async () => {
  const token = add("carol", "read");
  await reload(token, 200);
  await on("/", {}, async (page) => {
    await enter(page, token);
    await page.getByText("carol, read").waitFor();
    await live(page);
    execFileSync(AUSTER, ["api", "token", "remove", "carol", "--file", tokens]);
    await reload(token, 401);
    await alert(page, "Wrong token");
    assert.equal(await page.locator(".user").count(), 0);
  });
});

test("the page says that the streams are taken, and goes on when they are not", async () => {
  const token = add("dora", "read");
  await reload(token, 200);
  const gone = new AbortController();
  const headers = { authorization: `Bearer ${token}`, accept: "text/event-stream" };
  const path = `${address}/v1/events?follow=true`;
  const taken = [];
  await until("all streams are taken", async () => {
    const answer = await fetch(path, { headers, signal: gone.signal });
    if (answer.ok) taken.push(answer);
    return answer.status === 503;
  });
  assert.ok(taken.length <= STREAMS_MAX, String(taken.length));
  await on("/", {}, async (page) => {
    await enter(page, token);
    await page.getByText(`not live: ${STREAMS_MAX} streams are read already`).waitFor();
    assert.equal(await page.getByText("does not answer").count(), 0);
    gone.abort();
    await live(page);
  });
});

test("a form with too many wrong tokens, or without a right, says so", async () => {
  await on("/", {}, async (page) => {
    const problem = { status: 403, detail: "the certificate of eve names no role here" };
    await page.route("**/v1/access", (route) => route.fulfill({ status: 403, json: problem }));
    await enter(page, WRONG);
    await alert(page, "Not allowed");
    await alert(page, problem.detail);
    await page.unroute("**/v1/access");
    // One a second is forgiven, so that a slow machine takes more than one try.
    const headers = { authorization: `Bearer ${WRONG}` };
    const wrong = () => fetch(`${address}/v1/access`, { headers }).then((of) => of.text());
    await until("the address is limited", async () => {
      await Promise.all(Array.from({ length: 20 }, wrong));
      const answer = page.waitForResponse(`${address}/v1/access`);
      await enter(page, WRONG);
      return (await answer).status() === 429;
    });
    await alert(page, "Too many wrong tokens");
  });
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    test(`axe finds nothing in the form, ${colorScheme}, ${width} wide`, async () => {
      const options = { colorScheme, viewport: { width, height: 740 }, reducedMotion: "reduce" };
      await on("/", options, async (page) => {
        const check = async (what) => {
          assert.deepEqual(await violations(page), [], what);
          const overflow = await page.evaluate(() => {
            const { scrollWidth, clientWidth } = document.documentElement;
            return scrollWidth - clientWidth;
          });
          assert.ok(overflow <= 0, `${what} is ${overflow} pixels too wide`);
        };
        await page.getByLabel("Token").waitFor();
        await check("the form");
        assert.deepEqual(await unreached(page), []);
        await enter(page, "no token");
        await alert(page, "Wrong token");
        await check("a wrong token");
        await enter(page, reader);
        await page.getByText("bob, read").waitFor();
        await live(page);
        await check("signed in");
      });
    });
  }
}
