/** A promise that was broken, as the checker reports it. */
export type Broken = { readonly kind: string; readonly what: string; readonly detail: string };
