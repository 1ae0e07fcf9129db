// User properties: check and row. A call without properties still creates its user.

import { counts, reservedUserPropertyKeys } from '../contract/limits.js';
import type { Rejection } from '../contract/outcomes.js';
import { tables, type UserPropertiesInput, userPropertiesSchema } from '../contract/records.js';
import { bulkUsersSchema } from '../contract/schemas.js';
import { Compile } from '../contract/typebox.js';
import { explain } from '../parsing/explain.js';
import { noEventId } from './event-id.js';
import { fieldNames } from './ignored-fields.js';
import { mendUserProperties } from './mend.js';
import { checkProperties, type Properties } from './properties.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';
import { rowEncoder } from './row.js';

export type CheckedUserProperties = Checked & {
  readonly properties: Properties | undefined;
  /** From when on the values apply, as text for ClickHouse; by default the time of acceptance. */
  readonly time?: string | undefined;
  /** For a message of the client library or of Segment's protocol: the event id of its idempotency key. */
  readonly claim?: string | undefined;
};

const validator = Compile(userPropertiesSchema);
const table = tables.indexOf('user_properties');
const encodeRow = rowEncoder('user_properties');

export const userPropertiesKind: RecordKind<CheckedUserProperties> = {
  name: 'user_properties',
  fields: fieldNames(userPropertiesSchema),
  mend: mendUserProperties,
  check: checkUserProperties,
  encode: (appId, { identity, userId, properties, time, claim }) => ({
    table,
    row: encodeRow(appId, { user_id: userId, identity, properties }, false, claim ?? noEventId, time),
    claim,
  }),
  singleLimit: 'user_properties',
  bulk: { field: 'users', recordsMax: counts.bulkUsersMax, validator: Compile(bulkUsersSchema) },
};

function checkUserProperties(
  value: unknown,
  { surrogates }: CheckContext,
): CheckedUserProperties | Rejection {
  const reason = explain(validator, value, surrogates);
  if (reason !== undefined) return reason;
  const input = value as UserPropertiesInput;
  const properties = input.properties as Properties | undefined;
  if (properties !== undefined) {
    const result = checkProperties(properties, reservedUserPropertyKeys);
    if (typeof result !== 'boolean') return result;
  }
  return { identity: input.identity, userId: undefined, properties };
}
