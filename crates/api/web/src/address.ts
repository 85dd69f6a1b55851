// The state of a view is in the URL: a path that names the view, and parameters.

import { useEffect, useState } from "preact/hooks";

export interface Address {
  readonly path: string;
  readonly parameters: URLSearchParams;
}

const CHANGED = "auster:address";

export function current(): Address {
  return { path: location.pathname, parameters: new URLSearchParams(location.search) };
}

/** The address now, and again whenever it changes. */
export function useAddress(): Address {
  const [address, setAddress] = useState(current);
  useEffect(() => {
    const changed = () => setAddress(current());
    addEventListener("popstate", changed);
    addEventListener(CHANGED, changed);
    return () => {
      removeEventListener("popstate", changed);
      removeEventListener(CHANGED, changed);
    };
  }, []);
  return address;
}

export function go(href: string, isReplacement = false): void {
  if (href === location.pathname + location.search) return;
  if (isReplacement) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  dispatchEvent(new Event(CHANGED));
}

/** The same view with some parameters set, or left out where the value is empty. */
export function changed(values: Record<string, string | number | undefined>): string {
  const { path, parameters } = current();
  return href(path, { ...Object.fromEntries(parameters), ...values });
}

export function href(path: string, values: Record<string, string | number | undefined>): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** Clicks on our own links change the view without loading the page again. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest("a");
    const to = link?.getAttribute("href");
    if (!to || !to.startsWith("/") || link?.hasAttribute("download")) return;
    if (link?.getAttribute("data-plain") !== null) return;
    event.preventDefault();
    go(to);
  });
}
