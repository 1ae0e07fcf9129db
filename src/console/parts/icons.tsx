// The sign of the product, and the icons of the pages. They stand beside words, so screen readers skip them.

/** The name of the product with its sign. */
export function Brand({ name = 'Sluice' }: { readonly name?: string }) {
  return (
    <>
      <img class="sign" src="/sign.svg" alt="" width="24" height="24" /> <span>{name}</span>
    </>
  );
}

/** Lines in a square of 24 by 24. */
const paths = {
  bars: 'M3 21h18M6 17v-5M12 17V5M18 17V9',
  key: 'M12 16a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM11 13l9-9M16 8l3 3',
  person: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-3.5 3.5-5.5 8-5.5s8 2 8 5.5',
  bin: 'M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14M10 11v6M14 11v6',
  folder: 'M3 19V5h6l2 3h10v11z',
  check: 'M12 3l8 3v6c0 4.5-3.5 7.5-8 9-4.5-1.5-8-4.5-8-9V6zM8.5 12l2.5 2.5 4.5-5',
  pulse: 'M2 12h5l3-8 4 16 3-8h5',
  servers: 'M4 4h16v7H4zM4 13h16v7H4zM8 7.5h.01M8 16.5h.01',
  sliders:
    'M4 7h9M17 7h3M4 17h3M11 17h9M17 7a2 2 0 1 1-4 0 2 2 0 0 1 4 0zM11 17a2 2 0 1 1-4 0 2 2 0 0 1 4 0z',
  angles: 'M8 6l-5 6 5 6M16 6l5 6-5 6',
  book: 'M12 6c-2-1.5-5-2-9-2v14c4 0 7 .5 9 2 2-1.5 5-2 9-2V4c-4 0-7 .5-9 2zM12 6v14',
} as const;

export type IconName = keyof typeof paths;

export function Icon({ of }: { readonly of: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={paths[of]} />
    </svg>
  );
}
