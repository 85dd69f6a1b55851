// The map of a large network in Chromium: groups that open, keyboard, places that stay. The API is
// an imitation, so that a thousand switches are there at once. `make test-web` runs it.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { launch, open, violations } from "./browser.mjs";
import { network, serve } from "./imitation.mjs";
import { unreached } from "./keyboard.mjs";

const SHOTS = process.env.AUSTER_SHOTS ?? "../../../target/dashboard";
const SHAPE = { clusters: 32, size: 32, chords: 4 };
const NAMED = { ...SHAPE, name: (cluster, place) => `site${cluster}-s${place}` };
const PAINTED = ".map canvas[data-painted]";

let browser;
/** The same network with names and without. */
let named;
let bare;

const documents = (shape) => ({
  "/v1/topology": network(shape),
  "/v1/access": { kind: "local", name: "here", role: "admin" },
  "/v1/layout": { places: {} },
});

before(async () => {
  mkdirSync(SHOTS, { recursive: true });
  named = await serve(documents(NAMED));
  bare = await serve(documents(SHAPE));
  browser = await launch();
});

after(async () => {
  await browser?.close();
  named?.close();
  bare?.close();
});

/** Runs `body` on a page, which must not have asked any other origin for anything. */
async function on({ address }, path, options, body) {
  const { context, page, faults } = await open(browser, options, address);
  try {
    await page.addInitScript(() => {
      globalThis.longest = 0;
      const seen = new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) {
          globalThis.longest = Math.max(globalThis.longest, duration);
        }
      });
      seen.observe({ type: "longtask", buffered: true });
    });
    await page.goto(address + path);
    await page.locator(PAINTED).waitFor();
    await body(page);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

const groups = (page) => page.getByRole("region", { name: "Groups" });
const rows = (page, name) => page.getByRole("region", { name, exact: true }).locator("tbody tr");

/** The picture is still when it was not painted anew for a while. */
async function still(page) {
  await page.evaluate(async () => {
    const canvas = document.querySelector(".map canvas");
    for (let last = ""; last !== canvas.dataset.painted;) {
      last = canvas.dataset.painted;
      await new Promise((done) => setTimeout(done, 500));
    }
  });
}

/** Colours of the canvas at a place, from its middle. */
function colours(page) {
  return page.evaluate(() => {
    const canvas = document.querySelector(".map canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let at = 0; at < data.length; at += 4) {
      if (data[at + 3] === 255) seen.add(`${data[at]},${data[at + 1]},${data[at + 2]}`);
    }
    return seen.size;
  });
}

test("a thousand switches are drawn in groups by their names", async (t) => {
  await on(named, "/", {}, async (page) => {
    const drawn = await page.evaluate(() => performance.now());
    await still(page);
    const longest = await page.evaluate(() => globalThis.longest);
    t.diagnostic(`drawn after ${Math.round(drawn)} ms, longest task ${Math.round(longest)} ms`);
    await page.getByRole("group", { name: /^Map of 1024 switches in 32 groups/ }).waitFor();
    assert.equal(await rows(page, "Groups").count(), 20);
    await groups(page).getByText("Page 1 of 2, 32 rows").waitFor();
    const first = await rows(page, "Groups").first().innerText();
    assert.match(first, /site0\s.*all connected\s+32\s+320\s+160\s+6/s);
    assert.equal(await groups(page).getByText("1 away").count(), 6);
    assert.ok((await colours(page)) > 10);
    await page.screenshot({ path: `${SHOTS}/groups.png` });
  });
});

test("without names the groups are those that are most joined", async () => {
  await on(bare, "/", {}, async (page) => {
    await page.getByRole("group", { name: /^Map of 1024 switches in 32 groups/ }).waitFor();
    const first = await rows(page, "Groups").first().innerText();
    assert.match(first, /around [0-9a-f]+\s.*\s32\s+320\s+160\s+6/s);
  });
});

test("a group opens from the table, by keyboard, and its switches are listed", async () => {
  await on(named, "/", {}, async (page) => {
    await page.getByRole("region", { name: "Switches" }).getByText("1024 rows").waitFor();
    const link = groups(page).getByRole("link", { name: "site7", exact: true });
    await link.focus();
    await page.keyboard.press("Enter");
    await page.getByText("Group “site7”").waitFor();
    assert.match(page.url(), /group=site7/);
    assert.equal(await rows(page, "Switches").count(), 32);
    assert.match(await rows(page, "Switches").first().innerText(), /site7-s\d/);
    await still(page);
    await page.screenshot({ path: `${SHOTS}/group.png` });
    // The address holds it.
    await page.reload();
    await page.getByText("Group “site7”").waitFor();
    await page.getByRole("group", { name: /^Map of/ }).focus();
    await page.keyboard.press("Escape");
    await page.getByText("Group “site7”").waitFor({ state: "detached" });
    assert.doesNotMatch(page.url(), /group/);
  });
});

test("a click opens a group, another one chooses a switch, and what is dragged stays", async () => {
  await on(named, "/", {}, async (page) => {
    await still(page);
    const canvas = page.locator(".map .canvas");
    const middle = async () => {
      const { x, y, width, height } = await canvas.boundingBox();
      return [x + width / 2, y + height / 2];
    };
    // Keys move and magnify; whatever is in the middle then, it is a group or a switch of one.
    const kept = () => page.evaluate(() => localStorage.getItem("auster:groups"));
    await page.waitForFunction(() => localStorage.getItem("auster:groups") !== null);
    const place = await page.evaluate(() => {
      // The disc that lies farthest to the left is beside nothing else.
      const { width, height } = document.querySelector(".map .canvas").getBoundingClientRect();
      const all = JSON.parse(localStorage.getItem("auster:groups"));
      const r = 72 * (0.6 * Math.sqrt(32) + 0.5);
      const [left, right] = [Math.min(...all.map((d) => d[1])), Math.max(...all.map((d) => d[1]))];
      const [top, low] = [Math.min(...all.map((d) => d[2])), Math.max(...all.map((d) => d[2]))];
      const size = [right - left + 2 * r + 140, low - top + 2 * r + 140];
      const scale = Math.min(width / size[0], height / size[1]);
      const [name, x, y] = all.find((disc) => disc[1] === left);
      const at = [x - (left + right) / 2, y - (top + low) / 2].map((far) => far * scale);
      return { name, x: width / 2 + at[0], y: height / 2 + at[1] };
    });
    const { x, y } = await canvas.boundingBox();
    await page.mouse.move(x + place.x, y + place.y);
    await page.locator(".hover").filter({ hasText: place.name }).waitFor();
    const before = await kept();
    await page.mouse.down();
    await page.mouse.move(x + place.x - 40, y + place.y + 30, { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction((old) => localStorage.getItem("auster:groups") !== old, before);
    const moved = await kept();
    await page.reload();
    await page.locator(PAINTED).waitFor();
    await still(page);
    assert.equal(await kept(), moved);

    await page.getByRole("button", { name: "Fit" }).click();
    await groups(page).getByRole("link", { name: "site3", exact: true }).click();
    await page.evaluate(() => scrollTo(0, 0));
    await still(page);
    const [across, down] = await middle();
    // Around the middle of an open group are switches: the pointer finds one.
    for (let far = 0; far < 120 && !/[?&]switch=/.test(page.url()); far += 5) {
      await page.mouse.click(across + far, down + (far % 3) * 8);
    }
    await page.locator(".chosen-switch").waitFor();
    assert.match(await page.locator(".chosen-switch h2").innerText(), /site3-s\d+/);
    assert.match(page.url(), /group=site3/);
  });
});

test("groups stay where they are while switches and links come and go", async () => {
  const whole = network(SHAPE);
  const documents = {
    "/v1/topology": whole,
    "/v1/access": { kind: "local", name: "here", role: "admin" },
  };
  const changing = await serve(documents);
  try {
    await on(changing, "/", {}, async (page) => {
      await page.waitForFunction(() => localStorage.getItem("auster:members") !== null);
      await still(page);
      const kept = () => page.evaluate(() => localStorage.getItem("auster:groups"));
      const before = await kept();
      const isGone = (dpid) => Number.parseInt(dpid, 16) % 50 === 0;
      const switches = whole.switches.filter(({ dpid }) => !isGone(dpid));
      const links = whole.links.filter(
        ({ from, to }, place) =>
          place % 3 > 0 && ![from, to].some((end) => isGone(end.slice(0, 16))),
      );
      const dpid = "000000000000ffff";
      const link = { ...links[0], from: `${dpid}:1`, to: "0000000000000005:99" };
      documents["/v1/topology"] = {
        ...whole,
        switches: [...switches, { ...switches[0], dpid, name: "new" }],
        links: [...links, link],
      };
      await page.reload();
      await page.locator(PAINTED).waitFor();
      await still(page);
      await page.getByRole("group", { name: /^Map of 1005 switches in 32 groups/ }).waitFor();
      assert.equal(await kept(), before);
      // The new one is in the group of its neighbour.
      const named = (n) =>
        page.evaluate((n) => {
          const all = JSON.parse(localStorage.getItem("auster:members"));
          return all.map(([key]) => key.split(" ")).find(([, of]) => of === n)?.[0];
        }, n);
      await page.waitForFunction((n) => localStorage.getItem("auster:members").includes(n), dpid);
      assert.equal(await named(dpid), await named("0000000000000005"));
    });
  } finally {
    changing.close();
  }
});

test("places go from one browser to another by the controller", async () => {
  const far = (page, least) =>
    page.waitForFunction((least) => {
      const all = JSON.parse(localStorage.getItem("auster:groups") ?? "[]");
      return all.length === 32 && all.every(([, x]) => x > least);
    }, least);
  const shared = await serve({ ...documents(NAMED), "/v1/layout": { places: {} } });
  try {
    await on(shared, "/", {}, async (page) => {
      await still(page);
      assert.equal(await page.getByRole("button", { name: "Use saved places" }).count(), 0);
      await page.getByRole("button", { name: "Save for everyone" }).click();
      await page.getByText("Saved for everyone: 1024 switches.").waitFor();
    });
    const { places } = shared.documents["/v1/layout"];
    assert.equal(Object.keys(places).length, 1024);
    for (const place of Object.values(places)) place[0] += 50_000;
    // One that has no places begins with these; another one uses them when it is asked to.
    await on(shared, "/", {}, async (page) => {
      await still(page);
      await far(page, 40_000);
      await page.getByRole("button", { name: "Lay out again" }).click();
      await page.waitForFunction(() => {
        const all = JSON.parse(localStorage.getItem("auster:groups") ?? "[]");
        return all.length === 32 && all.every(([, x]) => x < 40_000);
      });
      await page.getByRole("button", { name: "Use saved places" }).click();
      await far(page, 40_000);
      await page.locator(PAINTED).waitFor();
      // Somebody else saves others meanwhile.
      shared.tags["/v1/layout"] = '"7"';
      await page.getByRole("button", { name: "Save for everyone" }).click();
      await page.getByText("Somebody else has saved places. Save again to").waitFor();
      await page.getByRole("button", { name: "Save for everyone" }).click();
      await page.getByText("Saved for everyone: 1024 switches.").waitFor();
    });
  } finally {
    shared.close();
  }
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    test(`axe finds nothing in the large map, ${colorScheme}, ${width} wide`, async () => {
      const options = { colorScheme, viewport: { width, height: 800 }, reducedMotion: "reduce" };
      await on(named, "/?group=site2", options, async (page) => {
        await page.getByText("Group “site2”").waitFor();
        await still(page);
        assert.deepEqual(await violations(page), []);
        const overflow = await page.evaluate(() => {
          const { scrollWidth, clientWidth } = document.documentElement;
          return scrollWidth - clientWidth;
        });
        assert.ok(overflow <= 0, `${overflow} pixels too wide`);
        const form = width < 1000 ? "-360" : "";
        await page.screenshot({ path: `${SHOTS}/group-${colorScheme}${form}.png` });
        assert.deepEqual(await unreached(page), []);
      });
    });
  }
}
