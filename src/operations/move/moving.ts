// A running move of a shard.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { OwnedMove } from '../../clickhouse/move-rows.js';
import type { CrashPoint } from '../../crash-point.js';
import type { ShardMove } from '../../registry/documents.js';
import type { AdminContext } from '../context.js';

export type Say = (line: string) => void;

export type Moving = {
  readonly context: AdminContext;
  readonly move: ShardMove;
  readonly owned: OwnedMove;
  readonly source: ClickHouseClient;
  readonly target: ClickHouseClient;
  readonly crash: CrashPoint;
  readonly say: Say;
};
