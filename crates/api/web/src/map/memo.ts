// A component that is drawn again only when one of its properties is another value.

import { type ComponentType, Component, h } from "preact";

export function memo<P extends object>(of: (properties: P) => preact.VNode | null) {
  return class extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const last = this.props as Record<string, unknown>;
      const names = Object.keys(next) as (keyof P & string)[];
      return names.some((name) => next[name] !== last[name]);
    }

    override render(properties: P) {
      return h(of as ComponentType<P>, properties);
    }
  } as unknown as ComponentType<P>;
}
