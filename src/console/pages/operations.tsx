// Operations: what waits to be stored, the processes, the shards and stores, and the rows that ClickHouse refused. For operators.

import type { Answer } from '../api.js';
import { amountText, bytesText, durationText, Help, Loaded, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { Table } from '../parts/table.js';
import { FailedRows } from './failed-rows.js';

type Parts = Answer<'showDeployment'>;

const everyMs = 10_000;

export function Operations() {
  return (
    <>
      <h1>Operations</h1>
      <Help page="deploy/RUNBOOK.md" about="running the service">
        What runs, and what waits. The runbook says what to do when something fails.
      </Help>
      <Loaded from={useResource<'showDeployment'>('/deployment', everyMs)}>
        {(data) => (
          <>
            <Backlog parts={data} />
            <Processes processes={data.processes} />
            <section class="card">
              <h2>Stores and shards</h2>
              <Stores parts={data} />
              <Shards parts={data} />
            </section>
          </>
        )}
      </Loaded>
      <FailedRows />
    </>
  );
}

function Backlog({ parts: { shards, backlog_bytes_max: bytesMax } }: { readonly parts: Parts }) {
  const sumOf = (of: (shard: Parts['shards'][number]) => number) =>
    shards.reduce((sum, shard) => sum + of(shard), 0);
  const bytes = sumOf((shard) => shard.bytes);
  const rows = sumOf((shard) => shard.rows);
  const oldestSeconds = Math.max(0, ...shards.map((shard) => shard.oldest_seconds));
  return (
    <section class="card">
      <h2>Backlog: accepted, but not stored yet</h2>
      <p class="line">
        <meter aria-label="Use of the backlog" min={0} max={bytesMax} value={bytes} />
        <span>
          {bytesText(bytes)} of {bytesText(bytesMax)}
          {rows === 0
            ? ', no rows'
            : `, ${amountText(rows, 'row')}, the oldest waiting for ${oldestSeconds.toFixed(1)} s`}
        </span>
      </p>
    </section>
  );
}

function Processes({ processes }: Pick<Parts, 'processes'>) {
  return (
    <section class="card">
      <h2>Processes</h2>
      <Table
        caption="Processes"
        rows={processes}
        keyOf={({ host, pid }) => `${host} ${pid}`}
        empty="No process has reported that it runs."
        columns={[
          { title: 'Process', text: (each) => each.process },
          { title: 'Host', text: (each) => `${each.host} (${each.pid})` },
          { title: 'Version', text: (each) => `${each.version}, Node ${each.node.replace('v', '')}` },
          {
            title: 'Running since',
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
    </section>
  );
}

type Store = {
  readonly name: string;
  readonly version?: string;
  readonly uses?: string;
  readonly uptime_seconds?: number;
};

function storesOf({ redis, clickhouse_servers: clickhouses }: Parts): readonly Store[] {
  return [
    { ...redis, name: 'Redis', uses: `${bytesText(redis.memory_bytes)} of memory` },
    ...clickhouses.map((server, index) => ({
      name: clickhouses.length === 1 ? 'ClickHouse' : `ClickHouse ${index}`,
      ...(server && {
        ...server,
        uses: `disk: ${bytesText(server.disk_free_bytes)} of ${bytesText(server.disk_bytes)} free`,
      }),
    })),
  ];
}

function Stores({ parts }: { readonly parts: Parts }) {
  return (
    <Table
      caption="Redis and ClickHouse"
      rows={storesOf(parts)}
      keyOf={({ name }) => name}
      empty=""
      columns={[
        { title: 'Store', text: (each) => each.name },
        {
          title: 'State',
          text: ({ version }) => (version === undefined ? 'does not answer' : 'answers'),
          chip: ({ version }) => (version === undefined ? 'bad' : 'good'),
        },
        { title: 'Version', text: (each) => each.version ?? '' },
        { title: 'Uses', text: (each) => each.uses ?? '' },
        {
          title: 'Up for',
          text: (each) => (each.uptime_seconds === undefined ? '' : durationText(each.uptime_seconds)),
        },
      ]}
    />
  );
}

function Shards({ parts }: { readonly parts: Parts }) {
  return (
    <Table
      caption="Shards, and what waits in them"
      rows={parts.shards}
      keyOf={({ shard }) => String(shard)}
      empty="There is no shard."
      columns={[
        { title: 'Shard', text: (each) => each.shard },
        ...(parts.clickhouse_servers.length === 1
          ? []
          : [{ title: 'ClickHouse', text: (each: Parts['shards'][number]) => each.server }]),
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
          chip: (each) => (each.has_worker ? 'good' : 'bad'),
        },
      ]}
    />
  );
}

function secondsSince(at: string): number {
  return (Date.now() - Date.parse(at)) / 1000;
}
