// The command `clickhouse` of deploy/RUNBOOK.md. It sends one statement to this deployment's ClickHouse, in its database and as the
// service's user. It prints the answer in the format that the statement names, or else as tab-separated values.

import { connectClickHouse, serversIn } from '../clickhouse/client.js';
import { readConfigBesideStart, readConfigOrExit } from '../config.js';
import { checkClickHouse, faultInWords } from './own-stores.js';

const config = readConfigOrExit(readConfigBesideStart);
// `--server N` names a server of CLICKHOUSE_URL; the first one, 0, is the default.
const words = process.argv.slice(2);
const number = words[0] === '--server' ? Number(words[1]) : 0;
const url = config.clickhouseUrls[number];
if (url === undefined) {
  process.stderr.write(
    `--server: the servers of CLICKHOUSE_URL are 0 to ${config.clickhouseUrls.length - 1}\n`,
  );
  process.exit(1);
}
const clickhouse = connectClickHouse({ ...serversIn(config), url });
try {
  const [query] = words[0] === '--server' ? words.slice(2) : words;
  if (query === undefined) throw new Error('a statement is needed, such as: SELECT count() FROM events');
  await checkClickHouse(clickhouse, config);
  const { stream } = await clickhouse.exec({ query });
  for await (const piece of stream) process.stdout.write(piece as Buffer);
} catch (error) {
  const words = faultInWords(error, config);
  process.stderr.write(`${words ?? (error instanceof Error ? error.message : String(error))}\n`);
  process.exitCode = 1;
} finally {
  await clickhouse.close();
}
