// What the checker finds.

/** A promise that was broken. */
export type Broken = { readonly kind: string; readonly what: string; readonly detail: string };
