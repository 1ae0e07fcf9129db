// What the bench and the test tools need in a fresh clone before they start their own services: `npm start` without the start. Silent when
// there is nothing to do. Plain JavaScript without dependencies, since it runs before packages are installed.

import { buildOrExit, installPackages, installRedis, requireFront, requireNode } from './setup.mjs';

requireNode();
installPackages();
requireFront();
installRedis();
await buildOrExit();
