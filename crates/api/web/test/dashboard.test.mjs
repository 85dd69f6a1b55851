// The dashboard in Chromium on four real Open vSwitch bridges in a ring. `make test-web` runs it.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { URL_OF_PAGE, WAIT_MS, launch, open, order, violations } from "./browser.mjs";
import { unreached } from "./keyboard.mjs";

const SHOTS = process.env.AUSTER_SHOTS ?? "../../../target/dashboard";
const DPID = "0000000000000001";
const WHY = "/why?src=10.77.0.1&dst=10.77.0.3&proto=tcp&dport=23";

/** Each view, and what is there once it has read all that it shows. */
const VIEWS = [
  { name: "network", path: `/?switch=${DPID}`, shows: ".chosen-switch" },
  { name: "why", path: WHY, shows: ".verdict" },
  { name: "switches", path: "/switches", shows: "text=0000000000000004" },
  { name: "switch", path: `/switch/${DPID}`, shows: "table:has-text('Match')" },
  { name: "qos", path: "/qos", shows: "table:has-text('voice-marked')" },
  { name: "channel", path: "/channel", shows: "main:has-text('names no relay'):has(table)" },
  { name: "events", path: "/events", shows: "table:has-text('link_up')" },
  { name: "cluster", path: "/cluster", shows: "text=serves alone" },
];

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

test("the ring is drawn with its hosts, from one address", async (t) => {
  const pings = [
    [1, 3],
    [3, 1],
    [2, 4],
    [4, 2],
  ];
  for (const [from, to] of pings) await order({ do: "ping", from, to });
  await on("/", {}, async (page) => {
    await page.locator(".map .switch").nth(3).waitFor();
    await page.locator(".map .link.there").nth(3).waitFor({ state: "attached" });
    t.diagnostic(
      `drawn ${Math.round(await page.evaluate(() => performance.now()))} ms after start`,
    );
    assert.equal(await page.locator(".map .switch").count(), 4);
    assert.equal(await page.locator(".map .link").count(), 4);
    await page.getByText("4 hosts").first().waitFor();
    // The table says the same as the picture.
    const links = page.getByRole("region", { name: "Links" });
    assert.equal(await links.locator("tbody tr").count(), 4);
    await page.getByRole("button", { name: /^Switch s1, connected, 1 host/ }).click();
    await page.getByRole("region", { name: "Switch s1", exact: true }).waitFor();
    assert.match(page.url(), /switch=0000000000000001/);
    await page.getByRole("button", { name: "Show hosts (1)" }).click();
    await page.getByText("10.77.0.1").waitFor();
    // This API has no users, and nothing of them is seen.
    assert.equal(await page.locator(".user, .sign-in").count(), 0);
    assert.doesNotMatch(await page.locator("details.commands").textContent(), /TOKEN|--token-file/);
  });
});

test("a switch stays where it is put", async () => {
  await on("/", {}, async (page) => {
    const one = page.locator(".map .switch").first();
    const before = await one.boundingBox();
    const [x, y] = [before.x + before.width / 2, before.y + before.height / 2 - 8];
    await page.mouse.move(x, y);
    await page.mouse.down();
    await page.mouse.move(x + 30, y + 20, { steps: 4 });
    await page.mouse.up();
    const place = () => one.getAttribute("transform");
    const put = await place();
    await page.reload();
    await one.waitFor();
    const numbers = (text) => text.match(/-?[\d.]+/g).map(Number);
    const [a, b] = [numbers(put), numbers(await place())];
    assert.ok(Math.abs(a[0] - b[0]) < 1 && Math.abs(a[1] - b[1]) < 1, `${put}, then ${b}`);
  });
});

test("places that one page saves are where the next one begins, and others hear of them", async () => {
  const place = (page) => page.locator(".map .switch").first().getAttribute("transform");
  const numbers = (text) => text.match(/-?[\d.]+/g).map(Number);
  await on("/", {}, async (earlier) => {
    await earlier.locator(".map .switch").nth(3).waitFor();
    await on("/", {}, async (page) => {
      const one = page.locator(".map .switch").first();
      const { x, y, width, height } = await one.boundingBox();
      await page.mouse.move(x + width / 2, y + height / 2 - 8);
      await page.mouse.down();
      await page.mouse.move(x + width / 2 - 40, y + height / 2 - 30, { steps: 4 });
      await page.mouse.up();
      await page.getByRole("button", { name: "Save for everyone" }).click();
      await page.getByText("Saved for everyone: 4 switches.").waitFor();
      await page.screenshot({ path: `${SHOTS}/saved.png` });
      const [a, b] = numbers(await place(page));
      const isThere = async (other) => {
        const [c, d] = numbers(await place(other));
        return Math.abs(a - c) <= 1 && Math.abs(b - d) <= 1;
      };
      // What somebody looks at does not move.
      await earlier.getByText("Somebody has saved new places.").waitFor();
      assert.ok(!(await isThere(earlier)));
      await earlier.getByRole("button", { name: "Use saved places" }).click();
      assert.ok(await isThere(earlier), `${await place(earlier)} is not ${a}, ${b}`);
      assert.equal(await earlier.getByText("Somebody has saved new places.").count(), 0);
      await on("/", {}, async (later) => {
        await later.locator(".map .switch").nth(3).waitFor();
        assert.ok(await isThere(later), `${await place(later)} is not ${a}, ${b}`);
      });
    });
  });
});

test("the load of links is shown while they carry something", async () => {
  await on("/?links.sort=-load", {}, async (page) => {
    await order({ do: "send", from: 1, to: 3, seconds: 10 });
    const first = page.getByRole("region", { name: "Links" }).locator("tbody tr").first();
    await first.filter({ hasText: /\d [MG]bit\/s, [\d.]+ %/ }).waitFor();
    await page.locator(".map .link line:not(.load-1)").first().waitFor({ state: "attached" });
    const path = `${SHOTS}/load.png`;
    await page.screenshot({ path });
  });
});

test("Why names the hop and the rule that drop a forbidden packet", async () => {
  await on("/why", {}, async (page) => {
    await page.getByLabel("From").fill("10.77.0.1");
    await page.getByLabel("To", { exact: true }).fill("10.77.0.3");
    await page.getByLabel("Protocol").fill("tcp");
    await page.getByLabel("Destination port").fill("23");
    await page.keyboard.press("Enter");
    const verdict = page.locator(".verdict");
    await verdict.waitFor();
    assert.match(await verdict.innerText(), /dropped/);
    const hop = page.locator(".hop", { has: page.locator(".decides") });
    assert.match(await hop.innerText(), new RegExp(DPID));
    assert.match(await hop.innerText(), /no telnet/);
    assert.equal(new URL(page.url()).searchParams.get("dport"), "23");
    await page.getByLabel("Destination port").fill("80");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.locator(".verdict:not(:has-text('dropped'))").waitFor();
    await page.getByLabel("From").fill("nobody");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.getByText("/src").waitFor();
  });
});

test("a cut link is shown with its event, and that it is back", async (t) => {
  await on("/", {}, async (page) => {
    await page.locator(".map .link.there").nth(3).waitFor({ state: "attached" });
    await page.evaluate(() => {
      const seen = new MutationObserver(() => {
        if (document.querySelector(".map .link.lost")) globalThis.cutSeen ??= Date.now();
      });
      seen.observe(document.body, { subtree: true, childList: true, attributes: true });
    });
    const cut = Date.now();
    await order({ do: "cut", link: 0 });
    await page.locator(".map .link.lost").waitFor({ state: "attached" });
    const seen = await page.evaluate(() => globalThis.cutSeen);
    t.diagnostic(`shown ${seen - cut} ms after the cut was ordered`);
    assert.equal(await page.locator(".map .link.there").count(), 3);
    await page.getByText("lost, seen last").waitFor();
    await page.getByRole("link", { name: "Events", exact: true }).first().click();
    const row = page.locator("tr", { hasText: "link_down" }).first();
    await row.waitFor();
    await row.getByRole("link").first().click();
    await page
      .getByRole("region", { name: /^Event \d+/ })
      .getByText("link_down")
      .waitFor();
    await page.goto(`${URL_OF_PAGE}/`);
    await order({ do: "mend", link: 0 });
    await page.locator(".map .link.there").nth(3).waitFor({ state: "attached" });
    assert.equal(await page.locator(".map .link.lost").count(), 0);
  });
});

test("the page says that it is stale, and goes on after the controller's restart", async () => {
  await on("/", {}, async (page) => {
    await page.getByText("4 switches connected").waitFor();
    await order({ do: "kill" });
    await page.getByText("stale").waitFor();
    await page.locator(".map .switch").nth(3).waitFor();
    await order({ do: "start" });
    await page.getByText("stale").waitFor({ state: "detached" });
    await page.getByText("4 switches connected").waitFor();
    await page.locator(".map .link.there").nth(3).waitFor({ state: "attached" });
    // What happens in the new process reaches the page, too.
    await order({ do: "cut", link: 1 });
    await page.locator(".map .link.lost").waitFor({ state: "attached" });
    await order({ do: "mend", link: 1 });
    await page.locator(".map .link.there").nth(3).waitFor({ state: "attached" });
  });
  for (const [from, to] of [
    [1, 3],
    [3, 1],
  ])
    await order({ do: "ping", from, to });
});

test("a circuit moves on the map when a link of its path fails", async () => {
  await on("/qos", {}, async (page) => {
    const caption = page.locator("figcaption");
    await caption.filter({ hasText: /passes .*000[24], / }).waitFor();
    const middle = (await caption.innerText()).includes("0002") ? 2 : 4;
    const link = middle === 2 ? 0 : 3;
    await page.locator(".map .switch.marked").nth(2).waitFor();
    await order({ do: "cut", link });
    await caption.filter({ hasText: `000${6 - middle}, ` }).waitFor();
    await order({ do: "mend", link });
  });
});

for (const colorScheme of ["light", "dark"]) {
  for (const [form, viewport] of [
    ["", { width: 1280, height: 800 }],
    ["-360", { width: 360, height: 740 }],
  ]) {
    test(`axe finds nothing in any view, ${colorScheme}, ${viewport.width} wide`, async () => {
      const options = { colorScheme, viewport, reducedMotion: "reduce" };
      for (const { name, path, shows } of VIEWS) {
        await on(path, options, async (page) => {
          await page.locator(shows).first().waitFor();
          await page.locator("details.commands summary").click();
          assert.deepEqual(await violations(page), [], name);
          const overflow = await page.evaluate(() => {
            const { scrollWidth, clientWidth } = document.documentElement;
            return scrollWidth - clientWidth;
          });
          assert.ok(overflow <= 0, `${name} is ${overflow} pixels too wide`);
          await page.evaluate(() => scrollTo(0, 0));
          const path = `${SHOTS}/${name}-${colorScheme}${form}.png`;
          await page.screenshot({ path, fullPage: true });
        });
      }
    });
  }
}

test("the keyboard alone reaches everything", async () => {
  for (const { name, path, shows } of VIEWS) {
    await on(path, {}, async (page) => {
      await page.locator(shows).first().waitFor();
      assert.deepEqual(await unreached(page), [], name);
    });
  }
  await on("/", {}, async (page) => {
    const one = page.getByRole("button", { name: /^Switch s2,/ });
    await one.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("region", { name: "Switch s2", exact: true }).waitFor();
    await page.keyboard.press("Escape");
    await page
      .getByRole("region", { name: "Switch s2", exact: true })
      .waitFor({ state: "detached" });
  });
});

test("nothing moves for those who asked for stillness", async () => {
  await on("/", { reducedMotion: "reduce" }, async (page) => {
    await page.locator(".map .link").first().waitFor({ state: "attached" });
    const moving = await page.evaluate(
      () =>
        [...document.querySelectorAll("*")].filter((element) => {
          const { transitionDuration, animationName } = getComputedStyle(element);
          return animationName !== "none" || transitionDuration.split(", ").some((s) => s !== "0s");
        }).length,
    );
    assert.equal(moving, 0);
  });
});

test(`every wait is bounded by ${WAIT_MS} ms, and an unknown path is the API's`, async () => {
  await on("/", {}, async (page) => {
    const answer = await page.request.get(`${URL_OF_PAGE}/nowhere`);
    assert.equal(answer.status(), 404);
    assert.match(answer.headers()["content-type"], /problem\+json/);
  });
});
