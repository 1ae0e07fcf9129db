export type Broken = { readonly kind: string; readonly what: string; readonly detail: string };
