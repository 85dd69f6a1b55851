// Measures the page beside a large network; see scripts/dashboard-scale. Prints figures of the
// first drawing, then "open", and after a line of input those of the time between.

import { createInterface } from "node:readline";
import { URL_OF_PAGE, launch, open } from "./browser.mjs";

const SHOTS = process.env.AUSTER_SHOTS;

const browser = await launch();

async function opened() {
  const { page } = await open(browser);
  await page.addInitScript(() => {
    globalThis.longTasks = [];
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) globalThis.longTasks.push(duration);
    }).observe({ type: "longtask", buffered: true });
  });
  await page.goto(URL_OF_PAGE);
  await page.locator(".map .switch, .map canvas[data-painted]").first().waitFor();
  const drawn_ms = await page.evaluate(() => performance.now());
  return { page, drawn_ms };
}

const pages = [await opened()];
const { page, drawn_ms } = pages[0];
const bytes = await page.evaluate(() => {
  const all = [
    ...performance.getEntriesByType("navigation"),
    ...performance.getEntriesByType("resource"),
  ];
  const sum = (entries) => entries.reduce((bytes, entry) => bytes + entry.transferSize, 0);
  const files = all.filter(({ name }) => !/\/(v1|healthz)/.test(new URL(name).pathname));
  return { files: sum(files), all: sum(all) };
});
if (SHOTS) await page.screenshot({ path: `${SHOTS}/scale.png` });
const longest = () => page.evaluate(() => Math.max(0, ...globalThis.longTasks));
console.log(
  JSON.stringify({
    drawn_ms: Math.round(drawn_ms),
    first_load_bytes: bytes.files,
    first_read_bytes: bytes.all - bytes.files,
    longest_task_at_first_ms: Math.round(await longest()),
  }),
);
for (let count = 1; count < Number(process.env.PAGES); count += 1) pages.push(await opened());
// The map is moved and magnified, as somebody would who looks for something.
const map = page.locator(".map .canvas, .map svg").first();
await map.focus();
await page.evaluate(() => (globalThis.longTasks = []));
for (const key of ["+", "+", "ArrowLeft", "+", "ArrowUp", "-", "ArrowRight", "-", "-"]) {
  for (let times = 0; times < 5; times += 1) await page.keyboard.press(key);
}
console.log(JSON.stringify({ longest_task_moving_ms: Math.round(await longest()) }));
await page.evaluate(() => (globalThis.longTasks = []));
console.log("open");
const input = createInterface({ input: process.stdin });
await new Promise((done) => input.once("line", done));
console.log(JSON.stringify({ longest_task_later_ms: Math.round(await longest()) }));
input.close();
await browser.close();
