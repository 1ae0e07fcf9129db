// The private services that tests start, exported from one file.

export { type Child, keepRunning } from './child.js';
export { type ClickHouseHandle, startClickHouse } from './clickhouse.js';
export { type RedisHandle, startRedis } from './redis.js';
export { type ApiHandle, type Bootstrap, type Deployment, type SluiceHandle, startSluice } from './sluice.js';
export { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
