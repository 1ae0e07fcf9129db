// What we use of ioredis. The build makes one file of it (deploy/build.mjs).

export {
  Cluster,
  type ClusterOptions,
  Redis,
  type RedisOptions,
  ReplyError,
  SentinelConnector,
} from 'ioredis';
