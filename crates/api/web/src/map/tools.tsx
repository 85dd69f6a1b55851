// The buttons of a map.

interface Properties {
  readonly press: (key: string) => void;
  readonly fit: () => void;
  readonly anew: () => void;
}

export function Tools({ press, fit, anew }: Properties) {
  return (
    <div class="tools" role="group" aria-label="Map">
      <button type="button" onClick={() => press("+")} aria-label="Magnify">
        +
      </button>
      <button type="button" onClick={() => press("-")} aria-label="Shrink">
        −
      </button>
      <button type="button" onClick={fit}>
        Fit
      </button>
      <button
        type="button"
        onClick={() => {
          anew();
          fit();
        }}
      >
        Lay out again
      </button>
    </div>
  );
}
