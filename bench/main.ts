// `npm run bench -- SCENARIO`: one scenario a file, each answers one question with figures and fails when
// what was acknowledged is not what ClickHouse holds.

import { backfill, backfillUsage } from './backfill.js';
import { deletion, deletionUsage } from './deletion.js';
import { BenchError } from './failure.js';
import { pipeline, pipelineUsage } from './pipeline.js';

type Scenario = { readonly usage: string; readonly run: (args: string[]) => Promise<void> };

const scenarios: Readonly<Record<string, Scenario>> = {
  backfill: { usage: backfillUsage, run: backfill },
  deletion: { usage: deletionUsage, run: deletion },
  pipeline: { usage: pipelineUsage, run: pipeline },
};

const [name, ...args] = process.argv.slice(2);
const scenario = name === undefined || !Object.hasOwn(scenarios, name) ? undefined : scenarios[name];
if (scenario === undefined) {
  const usages = Object.values(scenarios).map(({ usage }) => usage);
  process.stderr.write(`npm run bench -- SCENARIO [OPTION]…\n\n${usages.join('\n\n')}\n`);
  process.exit(name === undefined ? 0 : 1);
}
// Leaving through the exit handlers ends the services and removes their data.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
try {
  await scenario.run(args);
  process.exit(0);
} catch (error) {
  const badOption = (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS');
  if (badOption) process.stderr.write(`${(error as Error).message}\n\n${scenario.usage}\n`);
  else if (error instanceof BenchError) process.stderr.write(`bench: ${error.message}\n`);
  else process.stderr.write(`bench: ${error instanceof Error ? error.stack : String(error)}\n`);
  process.exit(1);
}
