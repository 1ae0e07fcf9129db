// Whether a certificate of a deletion is genuine. Open to anybody who has one, without signing in. The answer reveals nothing that is not
// in the certificate. A check takes milliseconds, and networks take turns.

import { createPlaces } from '../../concurrency.js';
import { administrationAnswers as answers } from '../../contract/administration-answers.js';
import { Unavailable } from '../../contract/errors.js';
import { bodies, certificateChecks } from '../../contract/limits.js';
import type { AdminContext } from '../../operations/context.js';
import { verifyOwn } from '../../privacy/deletion/certificate.js';
import { adminOperation, adminTags } from '../openapi/administration.js';
import { readJsonBody } from '../protocol/body.js';
import { networkOf } from '../protocol/caller-address.js';
import { attendOrRefuse } from '../protocol/failed.js';
import type { Route } from '../protocol/server.js';
import { adminGuard, failingAdministration } from './admin-caller.js';

type Stores = Pick<AdminContext, 'redis' | 'clickhouse' | 'log'>;

export function certificateCheckRoute({ redis, clickhouse, log }: Stores): Route {
  const places = createPlaces(certificateChecks);
  return {
    method: 'post',
    path: '/admin/v1/certificates/check',
    doc: adminOperation(
      'POST /certificates/check',
      {
        id: 'checkCertificate',
        tag: adminTags.open,
        summary: 'Whether a certificate of a deletion is genuine',
        description: 'The body is the certificate, unchanged. For everybody, without credentials.',
        anyBody: true,
        answer: answers.showVerified,
      },
      { ...adminGuard, security: [{}] },
    ),
    handle: (exchange) => {
      const holder = { account: networkOf(exchange.address) };
      readJsonBody(exchange, bodies.adminListBytesMax, (_, bytes) => {
        const text = bytes.toString('utf8');
        const work = async () => {
          const found = await places.within(holder, () => verifyOwn(redis, clickhouse, text));
          if (found === 'busy')
            throw new Unavailable('Too many certificates are being checked: try again later.');
          exchange.reply(200, JSON.stringify(found), [['Cache-Control', 'no-store']]);
        };
        attendOrRefuse(exchange, failingAdministration(log), work());
      });
    },
  };
}
