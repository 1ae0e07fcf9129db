// The part of the OpenAPI document about pairing a device with the Event Visualizer.

import { pairingSchema } from '../../contract/answers.js';
import { visualizer } from '../../contract/limits.js';
import { pairingRequestSchema, pairingStopSchema } from '../../contract/schemas.js';
import { bodyCodes, contentEncoding, json, type OpenApiPart, ref, refusals } from './document.js';

const tag = 'Event Visualizer';
const secret = 'slp_M5vcqNS5CSWmnzmT2yAqzQJ8sRzB7mQ5sN2n0Xn0K3A';

/** Clients that avoid a preflight send text/plain. */
function body(schema: object, example: object) {
  const content = json(schema, { plain: { summary: 'As a device sends it', value: example } });
  return { required: true, content: { ...content, 'text/plain': content['application/json'] } };
}

export const visualizerPart: OpenApiPart = {
  tag: {
    name: tag,
    description:
      'Pairs a device with the Event Visualizer, a page for administrators that shows live what the device sends. Open to pages of any site (CORS).',
  },
  schemas: {
    PairingRequest: pairingRequestSchema,
    Pairing: pairingSchema,
    PairingStop: pairingStopSchema,
  },
  paths: {
    '/api/visualizer/pairings': {
      post: {
        operationId: 'beginPairing',
        tags: [tag],
        summary: 'Begin a pairing',
        description: `The device shows the code; an administrator enters it on the page within ${visualizer.waitingMsMax / 60_000} minutes. Until the pairing ends, the device sends the secret as \`pairing\` with every batch. The pairing ends when it is stopped, when no page has been connected for a minute, and after ${visualizer.liveMsMax / 3_600_000} hours. At most ${visualizer.waitingPerAppMax} pairings of an environment and ${visualizer.waitingPerAddressMax} of an address wait at a time. A device that has a secret already sends it along, and learns its code again or, when that pairing has ended, gets another one.`,
        security: [{}],
        parameters: [contentEncoding],
        requestBody: body(ref('PairingRequest'), { app_id: '1' }),
        responses: {
          200: {
            description:
              'The pairing of the secret still waits or lives. Its code is good for so long at least.',
            content: json(ref('Pairing'), {
              again: {
                summary: 'Asked for again',
                value: { pairing: secret, code: 'K7P-3XM', expires_in: 340 },
              },
            }),
          },
          201: {
            description: 'It waits for its code to be entered.',
            content: json(ref('Pairing'), {
              begun: {
                summary: 'Begun',
                value: { pairing: secret, code: 'K7P-3XM', expires_in: visualizer.waitingMsMax / 1000 },
              },
            }),
          },
          ...refusals([
            ...bodyCodes,
            'missing_field',
            'invalid_type',
            'unknown_app_id',
            'rate_limited',
            'overloaded',
          ]),
        },
      },
    },
    '/api/visualizer/pairings/stop': {
      post: {
        operationId: 'stopPairing',
        tags: [tag],
        summary: 'Stop a pairing',
        description: 'The page is told. Answered alike whether there was such a pairing or not.',
        security: [{}],
        parameters: [contentEncoding],
        requestBody: body(ref('PairingStop'), { app_id: '1', pairing: secret }),
        responses: {
          200: { description: 'There is none now.', content: json(ref('Empty')) },
          ...refusals([...bodyCodes, 'missing_field', 'invalid_type', 'overloaded']),
        },
      },
    },
  },
};
