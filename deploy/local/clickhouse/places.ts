// Where the embedded servers of one machine are: their names, folders and ports. Several of them form one cluster.

import { type Config, clickhouseClusterSecretFile } from '../../../src/config.js';
import { findOrMakeSecret } from '../secrets.js';
import type { Cluster } from './server-config.js';

export const firstName = 'clickhouse';

export type Place = {
  /** The name of the process, its log, its folder in DATA_DIR and its files there. */
  readonly name: string;
  readonly httpPort: number;
  readonly tcpPort: number;
};

/** The place of a server by its number, from 1. */
export function placeOf({ clickhousePort, clickhouseTcpPort }: Config, number: number): Place {
  return {
    name: number === 1 ? firstName : `${firstName}-${number}`,
    httpPort: clickhousePort + number - 1,
    tcpPort: clickhouseTcpPort + number - 1,
  };
}

/** All places, in the order of the servers. */
export function placesOf(config: Config): Place[] {
  return Array.from({ length: config.clickhouseServers }, (_, index) => placeOf(config, index + 1));
}

/** The cluster of several servers; undefined for a single one. */
export function clusterOf(config: Config): Cluster | undefined {
  if (config.clickhouseServers === 1 || config.clickhouseCluster === undefined) return undefined;
  return {
    name: config.clickhouseCluster,
    secret: findOrMakeSecret(clickhouseClusterSecretFile(config.dataDir)),
    tcpPorts: placesOf(config).map(({ tcpPort }) => tcpPort),
  };
}
