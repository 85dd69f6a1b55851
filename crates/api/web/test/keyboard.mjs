// What can be focused, and what the Tab key reaches.

/** The marks of the elements that take input and are seen, or null where one has none yet. */
function marks(page, marksAll) {
  return page.evaluate((marksAll) => {
    const kinds = "a[href], button, input, select, summary, [tabindex='0']";
    const all = [...document.querySelectorAll(kinds)].filter((element) => {
      if (element.matches(":disabled")) return false;
      return element.checkVisibility({ visibilityProperty: true });
    });
    return all.map((element, place) => {
      const name = element.getAttribute("aria-label") ?? element.textContent.trim();
      if (marksAll) element.dataset.mark = `${place}: ${element.tagName} ${name.slice(0, 40)}`;
      return element.dataset.mark ?? null;
    });
  }, marksAll);
}

/** The marks of the elements that have the focus after each press of Tab. */
async function walk(page, presses) {
  const reached = [];
  for (let press = 0; press < presses; press += 1) {
    await page.keyboard.press("Tab");
    const mark = await page.evaluate(() => {
      const element = document.activeElement;
      return element?.dataset.mark ?? null;
    });
    if (mark !== null) reached.push(mark);
  }
  return reached;
}

const WALKS_MAX = 5;

/** The marks of what Tab does not reach. If the page has changed on the way, it is walked again. */
export async function unreached(page) {
  for (let walks = 1; ; walks += 1) {
    const all = await marks(page, true);
    const reached = await walk(page, all.length + 10);
    const missed = all.filter((one) => !reached.includes(one));
    const now = await marks(page, false);
    const isSame = now.length === all.length && now.every((one) => all.includes(one));
    if (isSame || missed.length === 0 || walks === WALKS_MAX) return missed;
  }
}
