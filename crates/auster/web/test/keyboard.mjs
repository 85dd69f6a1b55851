// What can be focused, and what the Tab key reaches.

/** Marks each element that takes input and is seen; their marks. */
function focusables(page) {
  return page.evaluate(() => {
    const kinds = "a[href], button, input, select, summary, [tabindex='0']";
    const all = [...document.querySelectorAll(kinds)].filter((element) => {
      if (element.matches(":disabled")) return false;
      return element.checkVisibility({ visibilityProperty: true });
    });
    return all.map((element, place) => {
      const name = element.getAttribute("aria-label") ?? element.textContent.trim();
      element.dataset.mark = `${place}: ${element.tagName} ${name.slice(0, 40)}`;
      return element.dataset.mark;
    });
  });
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

/** The marks of what Tab does not reach. What the page has replaced on the way is looked for again. */
export async function unreached(page) {
  for (let walks = 1; ; walks += 1) {
    const all = await focusables(page);
    const reached = await walk(page, all.length + 10);
    const missed = all.filter((one) => !reached.includes(one));
    const there = await page.evaluate(() =>
      [...document.querySelectorAll("[data-mark]")].map((element) => element.dataset.mark),
    );
    if (walks === WALKS_MAX || missed.every((one) => there.includes(one))) return missed;
  }
}
