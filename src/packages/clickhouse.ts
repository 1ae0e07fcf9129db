// What we use of ClickHouse's client. The build makes one file of it (deploy/build.mjs).

export {
  type ClickHouseClient,
  ClickHouseError,
  ClickHouseLogLevel,
  createClient,
  extractErrorAtTheEndOfChunk,
} from '@clickhouse/client';
