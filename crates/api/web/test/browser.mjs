// A real browser on a real network: what the tests share.

import net from "node:net";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { gunzipSync } from "node:zlib";
import { chromium } from "playwright-core";

export const URL_OF_PAGE = process.env.AUSTER_URL;

/** Where Debian installs Chromium; CHROMIUM names another. */
const EXECUTABLE = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** A busy machine takes its time. */
export const WAIT_MS = 60_000;

export async function launch() {
  return chromium.launch({
    executablePath: EXECUTABLE,
    // Root has no sandbox, and a container's shared memory is small.
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
}

/** A page that fails the test if its script throws or asks any other origin for anything. */
export async function open(browser, options = {}, address = URL_OF_PAGE) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(WAIT_MS);
  if (process.env.AUSTER_DIST) await fromFolder(context, process.env.AUSTER_DIST);
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(`script: ${error.stack}`));
  page.on("console", (message) => {
    // Security policies that are broken are said there; a controller that is away is no fault.
    const text = message.text();
    if (message.type() === "error" && !/Failed to load resource|net::ERR_/.test(text)) {
      faults.push(`console: ${text}`);
    }
  });
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (origin !== address && protocol !== "data:") faults.push(`asks ${request.url()}`);
  });
  return { context, page, faults };
}

/** The page as it is in a folder, not in the program: to try a change without building that. */
async function fromFolder(context, folder) {
  const file = (name) => gunzipSync(readFileSync(`${folder}/${name}.gz`));
  await context.route(/\/(app\.js|app\.css)$/, async (route) => {
    const name = new URL(route.request().url()).pathname.slice(1);
    const response = await route.fetch();
    await route.fulfill({ response, body: file(name) });
  });
}

/** Changes the network; see scripts/dashboard-network. */
export function order(values) {
  return new Promise((done, failed) => {
    const socket = net.connect(process.env.AUSTER_CONTROL);
    let text = "";
    socket.setEncoding("utf8");
    socket.on("connect", () => socket.write(`${JSON.stringify(values)}\n`));
    socket.on("error", failed);
    socket.on("data", (more) => {
      text += more;
      if (!text.includes("\n")) return;
      socket.end();
      const answer = JSON.parse(text);
      if (answer.failed) failed(new Error(answer.failed));
      else done(answer);
    });
  });
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What breaks WCAG 2.2 AA or good practice, one line each. */
export async function violations(page) {
  // The page's policy keeps scripts out; the debugger's are not the page's.
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const result = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    return result.violations.map(({ id, help, nodes }) => {
      const places = nodes.map(({ html, failureSummary }) => `${html}: ${failureSummary}`);
      return `${id}: ${help}\n  ${places.slice(0, 3).join("\n  ")}`;
    });
  });
  return found;
}
