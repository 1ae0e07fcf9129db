// `npm start`: everything on one machine, from a fresh clone. Sets up what is missing, builds, and becomes the supervisor (main.ts), which
// runs Redis, ClickHouse, the workers and the API. Plain JavaScript without dependencies, since it runs before packages are installed.

import { buildOrExit, installPackages, installRedis, requireFront, requireNode } from './setup.mjs';

requireNode();
installPackages();
requireFront();
if (!process.env.REDIS_URL) installRedis();
await buildOrExit();
await import('../../dist/deploy/local/main.js');
