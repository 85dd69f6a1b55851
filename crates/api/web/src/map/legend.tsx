// What the marks of the map mean.

import type { ComponentChildren } from "preact";
import { LOAD_STEPS } from "../health";

const LOADS = LOAD_STEPS.map((step, place) => {
  const from = place === 0 ? 0 : LOAD_STEPS[place - 1]!;
  return `${from * 100}–${step * 100} %`;
}).concat(`over ${LOAD_STEPS.at(-1)! * 100} %`);

interface Properties {
  readonly isGrouped: boolean;
  readonly children?: ComponentChildren;
}

export function Legend({ isGrouped, children }: Properties) {
  return (
    <ul class="legend" aria-label="Legend">
      {LOADS.map((text, step) => (
        <li>
          <svg viewBox="0 0 28 12" aria-hidden="true">
            <line class={`load${step}`} x1="1" y1="6" x2="27" y2="6" />
          </svg>
          {text}
        </li>
      ))}
      <li>
        <b aria-hidden="true">✕</b> lost
      </li>
      {isGrouped ? (
        <li>a line between groups: all their links, as the fullest of them</li>
      ) : (
        <>
          <li>
            <b aria-hidden="true">D</b> drained
          </li>
          <li>
            <b aria-hidden="true">!</b> differs or doubted
          </li>
          <li>
            <b aria-hidden="true">?</b> not found
          </li>
          <li>ring: the channel</li>
        </>
      )}
      {children && <li class="places-item">{children}</li>}
    </ul>
  );
}
