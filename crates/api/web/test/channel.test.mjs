// The view of the control channel in Chromium, on four real Open vSwitch bridges that come by a
// pair of relays. `make test-web` runs it.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { URL_OF_PAGE, launch, open, order, violations } from "./browser.mjs";
import { unreached } from "./keyboard.mjs";

const SHOTS = process.env.AUSTER_SHOTS ?? "../../../target/dashboard";

let browser;

before(async () => {
  mkdirSync(SHOTS, { recursive: true });
  browser = await launch();
});

after(() => browser?.close());

/** Runs `body` on a page, which must not have asked any other origin for anything. */
async function on(path, options, body) {
  const { context, page, faults } = await open(browser, options);
  try {
    await page.goto(URL_OF_PAGE + path);
    await body(page);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

const rows = (page, name) => page.getByRole("region", { name }).locator("tbody tr");

for (const colorScheme of ["light", "dark"]) {
  for (const [form, width] of [
    ["", 1280],
    ["-360", 360],
  ]) {
    test(`axe finds nothing in the channel, ${colorScheme}, ${width} wide`, async () => {
      const options = { colorScheme, viewport: { width, height: 800 }, reducedMotion: "reduce" };
      await on("/channel", options, async (page) => {
        await page.getByRole("region", { name: /^Session with/ }).waitFor();
        await page.locator("details.commands summary").click();
        assert.deepEqual(await violations(page), []);
        const overflow = await page.evaluate(() => {
          const { scrollWidth, clientWidth } = document.documentElement;
          return scrollWidth - clientWidth;
        });
        assert.ok(overflow <= 0, `${overflow} pixels too wide`);
        await page.evaluate(() => scrollTo(0, 0));
        await page.screenshot({
          path: `${SHOTS}/channel-relays-${colorScheme}${form}.png`,
          fullPage: true,
        });
        assert.deepEqual(await unreached(page), []);
      });
    });
  }
}

test("sessions, queues, connections and lanes of the relay are those that it has", async () => {
  await on("/channel", {}, async (page) => {
    const { relays } = await page.request.get(`${URL_OF_PAGE}/v1/relays`).then((of) => of.json());
    assert.deepEqual(
      relays.map(({ problem }) => problem !== null),
      [false, true],
    );
    const [session] = relays[0].sessions;
    assert.equal(session.channels.length, 4);
    // The one that is not there is named.
    await page.getByRole("alert").filter({ hasText: "absent.sock" }).waitFor();
    assert.equal(await rows(page, "Connections of switches").count(), 4);
    const row = rows(page, "Sessions of relays").first();
    assert.match(await row.innerText(), /sw\s.*connected\s.*quic.*ms/s);
    const part = page.getByRole("region", { name: `Session with ${session.name}` });
    await part.waitFor();
    assert.equal(await rows(page, "Channels").count(), 4);
    assert.match(
      await rows(page, "Channels").first().innerText(),
      /\d+ OpenFlow\s.*state\d+ \d+/is,
    );
    assert.equal(
      await rows(page, /^Queues of the policy map/).count(),
      session.policy.queues.length,
    );
    assert.ok(session.carriers.length >= 1);
    assert.equal((await rows(page, "Connections", { exact: true }).count()) > 0, true);
  });
});

test("a relay that goes away is said to be away, and then to be gone", async () => {
  await on("/channel", {}, async (page) => {
    const row = rows(page, "Sessions of relays").first();
    await row.filter({ hasText: "connected" }).waitFor();
    await page.evaluate(() => {
      globalThis.states = new Set();
      const see = () => {
        for (const one of document.querySelectorAll("[aria-label='Sessions of relays'] .state")) {
          globalThis.states.add(one.textContent);
        }
        for (const one of document.querySelectorAll(".trouble p")) {
          globalThis.states.add(one.textContent);
        }
      };
      new MutationObserver(see).observe(document.body, {
        ...{ subtree: true, childList: true, characterData: true },
      });
      see();
    });
    await order({ do: "kill-relay" });
    await page.getByText("No relay has a session now.").waitFor();
    const states = await page.evaluate(() => [...globalThis.states]);
    const said = states.filter((text) => !/connected|away|No such file/.test(text));
    assert.deepEqual(said, []);
  });
});
