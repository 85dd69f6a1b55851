// A form whose fields are parameters of the URL: they follow it, and what is typed stays until then.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Properties {
  readonly class: string;
  readonly values: Readonly<Record<string, string>>;
  readonly submit: (values: Record<string, string>) => void;
  readonly children: ComponentChildren;
}

export function Form({ class: kind, values, submit, children }: Properties) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    for (const [name, value] of Object.entries(values)) {
      const field = form.current?.elements.namedItem(name);
      if (field instanceof HTMLInputElement) field.value = value;
    }
  }, [JSON.stringify(values)]);
  const submitted = (event: SubmitEvent) => {
    event.preventDefault();
    const read = new FormData(event.currentTarget as HTMLFormElement);
    const pairs = Object.keys(values).map((name) => [name, String(read.get(name) ?? "").trim()]);
    submit(Object.fromEntries(pairs));
  };
  return (
    <form class={kind} ref={form} onSubmit={submitted}>
      {children}
    </form>
  );
}
