// The deployment under test, as a measured run sees it.

import { untilStored } from '../test/support/ingestion.js';
import type { Deployment } from './deployment.js';
import type { Subject } from './measure.js';
import { countRecords, mergesEnded } from './stored.js';

export function deploymentSubject(deployment: Deployment): Subject {
  return {
    url: deployment.url,
    cpu: () => deployment.cpu(),
    stored: async (appId) => {
      // As many as were acknowledged may be stored while one that was doubled still waits.
      if (deployment.own !== undefined) await untilStored(deployment.own.sluice);
      return deployment.stored(appId);
    },
    count: (appId) => countRecords(deployment, appId),
    settle: () => mergesEnded(deployment),
  };
}
