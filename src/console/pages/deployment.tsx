// The parts of the deployment, for operators: the backlog of each shard, the processes, Redis and ClickHouse.

import { durationText, Loaded, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { Table } from '../parts/table.js';

type Shard = {
  readonly shard: number;
  readonly has_worker: boolean;
  readonly segments: number;
  readonly rows: number;
  readonly bytes: number;
  readonly oldest_seconds: number;
  readonly server: number;
};
type Process = {
  readonly process: string;
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  readonly node: string;
  readonly started_at: string;
  readonly memory_bytes: number;
};
type Parts = {
  readonly shards: readonly Shard[];
  readonly backlog_bytes_max: number;
  readonly processes: readonly Process[];
  readonly redis: {
    readonly version: string;
    readonly memory_bytes: number;
    readonly uptime_seconds: number;
  };
  readonly clickhouse_servers: readonly ({
    readonly version: string;
    readonly uptime_seconds: number;
    readonly disk_free_bytes: number;
    readonly disk_bytes: number;
  } | null)[];
};

const everyMs = 10_000;

export function Deployment() {
  const parts = useResource<Parts>('/deployment', everyMs);
  return (
    <Loaded from={parts}>
      {(data) => (
        <>
          <Backlog parts={data} />
          <section class="card">
            <h2>Processes</h2>
            <Table
              caption="Processes"
              rows={data.processes}
              keyOf={({ host, pid }) => `${host} ${pid}`}
              empty="No process has said that it runs."
              columns={[
                { title: 'Process', text: (each) => each.process },
                { title: 'Host', text: (each) => `${each.host} (${each.pid})` },
                { title: 'Version', text: (each) => `${each.version}, Node ${each.node.replace('v', '')}` },
                {
                  title: 'Runs since',
                  text: (each) => each.started_at,
                  cell: (each) => (
                    <>
                      <Time at={each.started_at} />{' '}
                      <span class="muted">({durationText(secondsSince(each.started_at))})</span>
                    </>
                  ),
                },
                {
                  title: 'Memory',
                  text: (each) => each.memory_bytes,
                  cell: (each) => bytesText(each.memory_bytes),
                  number: true,
                },
              ]}
            />
            <Servers parts={data} />
          </section>
        </>
      )}
    </Loaded>
  );
}

function Backlog({ parts }: { readonly parts: Parts }) {
  const { shards, backlog_bytes_max: bytesMax } = parts;
  const sumOf = (of: (shard: Shard) => number) => shards.reduce((sum, shard) => sum + of(shard), 0);
  const bytes = sumOf((shard) => shard.bytes);
  return (
    <section class="card">
      <h2>Backlog: what is taken and not stored yet</h2>
      <p class="line">
        <meter aria-label="Use of the backlog" min={0} max={bytesMax} value={bytes} />
        <span>
          {bytesText(bytes)} of {bytesText(bytesMax)}
        </span>
      </p>
      <Table
        caption="Backlog by shard"
        rows={shards}
        keyOf={({ shard }) => String(shard)}
        empty="There is no shard."
        columns={[
          { title: 'Shard', text: (each) => each.shard },
          ...(parts.clickhouse_servers.length === 1
            ? []
            : [{ title: 'ClickHouse', text: (each: Shard) => each.server }]),
          {
            title: 'Oldest (s)',
            text: (each) => (each.rows === 0 ? '' : each.oldest_seconds),
            cell: (each) => (each.rows === 0 ? 'none' : `${each.oldest_seconds.toFixed(1)} s`),
          },
          { title: 'Rows', text: (each) => each.rows, number: true },
          { title: 'Segments', text: (each) => each.segments, number: true },
          {
            title: 'Bytes',
            text: (each) => each.bytes,
            cell: (each) => bytesText(each.bytes),
            number: true,
          },
          {
            title: 'Worker',
            text: (each) => (each.has_worker ? 'works' : 'none'),
            cell: (each) => (
              <span class={`chip ${each.has_worker ? 'good' : 'bad'}`}>
                {each.has_worker ? 'works' : 'none'}
              </span>
            ),
          },
        ]}
      />
    </section>
  );
}

function Servers({ parts: { redis, clickhouse_servers: clickhouses } }: { readonly parts: Parts }) {
  return (
    <dl class="facts servers">
      <dt>Redis</dt>
      <dd>
        {redis.version}, {bytesText(redis.memory_bytes)}, up {durationText(redis.uptime_seconds)}
      </dd>
      {clickhouses.map((server, index) => (
        <>
          <dt>{clickhouses.length === 1 ? 'ClickHouse' : `ClickHouse ${index}`}</dt>
          <dd>
            {server === null
              ? 'does not answer'
              : `${server.version}, ${bytesText(server.disk_free_bytes)} of ${bytesText(server.disk_bytes)} free, up ${durationText(server.uptime_seconds)}`}
          </dd>
        </>
      ))}
    </dl>
  );
}

function secondsSince(at: string): number {
  return (Date.now() - Date.parse(at)) / 1000;
}

function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toLocaleString(undefined, { maximumFractionDigits: value < 10 && unit > 0 ? 1 : 0 })} ${units[unit]}`;
}
