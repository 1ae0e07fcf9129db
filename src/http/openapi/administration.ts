// The OpenAPI document of the administration: /admin/v1 on ADMIN_PORT, for programs with ADMIN_TOKEN and for the console.

import type { Command } from '../../admin/command.js';
import { isNotSent } from '../../admin/command.js';
import type { CommandName } from '../../admin/commands.js';
import { administrationAnswers as answers } from '../../contract/administration-answers.js';
import { type Schema, Type } from '../../contract/typebox.js';
import { bodyGuard } from '../protocol/body.js';
import type { Guard } from '../protocol/guard.js';
import { answered, inPath, json, type OpenApiPart, operation } from './document.js';

export const adminTags = { commands: 'Administration', self: 'Own access', open: 'Sign-in' } as const;

/** An operation of the administration: its texts, and the schemas of its fields besides those of its path. */
export type AdminDoc = {
  readonly id: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly given?: Readonly<Record<string, Schema>>;
  /** Whether it accepts any body, which it does not read. */
  readonly anyBody?: boolean;
  readonly answer: Schema;
};

type ObjectSchema = { readonly properties: object; readonly required?: readonly string[] };

/** The document of `METHOD /path/:parameter`. */
export function adminOperation(route: string, doc: AdminDoc, guard: Guard): object {
  const { id, tag, summary, description, given = {}, anyBody = false, answer } = doc;
  const { properties, required = [] } = Type.Object(given) as ObjectSchema;
  const fields = Object.entries(given);
  const isInQuery = route.startsWith('GET ') || (route.startsWith('DELETE ') && tag === adminTags.commands);
  const hasBody = anyBody || (!isInQuery && fields.length > 0);
  const inQuery = (isInQuery ? fields : []).map(([name, schema]) => {
    const { description: words, ...shown } = schema as { readonly description?: string };
    const isRequired = required.includes(name) && { required: true };
    return { name, in: 'query', ...isRequired, schema: shown, ...(words && { description: words }) };
  });
  const body = {
    body: json({ type: 'object', properties, required }),
    isBodyOptional: required.length === 0,
  };
  return operation(
    {
      id,
      tag,
      summary,
      description,
      parameters: [...[...route.matchAll(/:(\w+)/g)].map(([, name]) => inPath(String(name))), ...inQuery],
      ...(hasBody && body),
      answers: { 200: answered('Done.', answer) },
      refuses: inQuery.length > 0 ? ['invalid_parameter'] : [],
    },
    guard,
    ...(hasBody ? [{ refuses: bodyGuard.refuses }] : []),
  );
}

export function commandDoc(
  route: string,
  id: string,
  [name, command]: readonly [CommandName, Command],
  guard: Guard,
  roles: string,
): object {
  const { summary = '', given = {}, textOfBody } = command;
  const shown = Object.entries(given).filter(([field]) => field !== textOfBody && !isNotSent(command, field));
  const answer = answers[name as keyof typeof answers];
  const doc = { id, tag: adminTags.commands, summary, description: roles, answer };
  return adminOperation(
    route,
    { ...doc, given: Object.fromEntries(shown), anyBody: textOfBody !== undefined },
    guard,
  );
}

/** Everything on ADMIN_PORT that takes ADMIN_TOKEN or a session. */
export const administrationPart: OpenApiPart = {
  tag: {
    name: adminTags.commands,
    description:
      'For programs with `Authorization: Bearer ADMIN_TOKEN`, which may do everything, and for people who are signed in to the console, as far as their role allows: things of another account are answered as if they did not exist. Requests with a session, except GET, must carry the header `Sluice-Console: 1` and come from a page of the console.',
  },
  securitySchemes: {
    adminToken: {
      type: 'http',
      scheme: 'bearer',
      description:
        'The ADMIN_TOKEN of the deployment, or the key of a program (`program-keys create`), which has the rights of its role.',
    },
    session: {
      type: 'apiKey',
      in: 'cookie',
      name: 'sluice_session',
      description:
        'A session of the console; it ends after 12 hours. If the address of the console has a port, the name ends with it: `sluice_session_8081`.',
    },
  },
};
