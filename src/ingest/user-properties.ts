// User properties: check and row. A call without properties creates its user all the same.

import { Compile } from 'typebox/compile';
import { tableIndex } from '../clickhouse/tables.js';
import { reservedUserPropertyKeys } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { bulkUsersSchema, type UserPropertiesInput, userPropertiesSchema } from '../contract/schemas.js';
import { explain, refuseLoneSurrogates } from './explain.js';
import { mendUserProperties } from './mend.js';
import { checkProperties, encodeProperties, type Properties } from './properties.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';

export type CheckedUserProperties = Checked & { readonly properties: Properties | undefined };

const validator = Compile(userPropertiesSchema);

export const userPropertiesKind: RecordKind<CheckedUserProperties> = {
  name: 'user_properties',
  mend: mendUserProperties,
  check: checkUserProperties,
  encode: (appId, { identity, userId, properties }) => ({
    table: tableIndex.user_properties,
    row: `["${appId}",${userId ?? 'null'},${JSON.stringify(identity)},${encodeProperties(properties, false)},`,
    claim: undefined,
  }),
  singleLimit: 'user_properties',
  bulk: { field: 'users', validator: Compile(bulkUsersSchema) },
};

function checkUserProperties(
  value: unknown,
  { surrogates }: CheckContext,
): CheckedUserProperties | Rejection {
  if (!validator.Check(value)) return explain(validator, value) ?? notAsDescribed;
  const input = value as UserPropertiesInput;
  if (surrogates) {
    const reason = refuseLoneSurrogates(input);
    if (reason !== undefined) return reason;
  }
  const properties = input.properties as Properties | undefined;
  if (properties !== undefined) {
    const result = checkProperties(properties, reservedUserPropertyKeys);
    if (typeof result !== 'boolean') return result;
  }
  return { identity: input.identity, userId: undefined, properties };
}

const notAsDescribed = rejection('invalid_type', 'The user properties are not as described.');
