// The processes and connections of a deployment, under the names that faults use.

/** A process, by its kind and number. */
export type ProcessPart =
  | `${'api' | 'worker'}-${1 | 2}`
  | 'redis'
  | 'clickhouse'
  | `${'redis' | 'clickhouse'}-${1 | 2 | 3}`;

/** The connections with a proxy: between these two, or to this server. */
export type Link =
  | 'api-redis'
  | 'worker-redis'
  | 'worker-clickhouse'
  | `to-${'redis' | 'clickhouse'}-${1 | 2 | 3}`;
