// The deployment under test, as a measured run sees it.

import type { Deployment } from './deployment.js';
import type { Subject } from './measure.js';
import { countRecords, mergesEnded } from './stored.js';

export function deploymentSubject(deployment: Deployment): Subject {
  return {
    url: deployment.url,
    cpu: () => deployment.cpu(),
    stored: (appId) => deployment.stored(appId),
    count: (appId) => countRecords(deployment, appId),
    settle: () => mergesEnded(deployment),
  };
}
