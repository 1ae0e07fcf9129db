// Reads which metrics, labels and label values PromQL expressions name. It knows only as much of the language as the rules and the
// dashboard use.

export type Selector = {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly values: readonly string[] }[];
};

/** The metrics of this service that an expression selects, with the label values by which it selects them. */
export function selectorsOf(expression: string): Selector[] {
  return [...expression.matchAll(/\b(sluice[_:][a-z0-9_:]+)(?:\{([^}]*)\})?/g)].map(([, metric, inner]) => ({
    metric: String(metric),
    matchers: [...(inner ?? '').matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"/g)].map(([, label, value]) => ({
      label: String(label),
      values: String(value).split('|'),
    })),
  }));
}

export function groupingLabelsOf(expression: string): string[] {
  return [...expression.matchAll(/\b(?:by|on|without|ignoring)\s*\(([^)]*)\)/g)]
    .flatMap(([, labels]) => String(labels).split(','))
    .map((label) => label.trim())
    .filter((label) => label !== '');
}

/** The name under which a metric is declared; the series of a histogram have suffixes. */
export function declaredName(metric: string, declared: ReadonlySet<string>): string {
  const base = metric.replace(/_(bucket|sum|count)$/, '');
  return declared.has(base) ? base : metric;
}
