// People who use the console, simulated by real requests with the cookies and headers of a browser's page.

import type { Role } from '../../src/contract/roles.js';
import type { Deployment } from '../harness/sluice.js';

export type Answer = {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly headers: Headers;
};

export const password = 'correct horse battery staple';

/** The name of a console's cookie, which contains the console's port. */
export function cookieAt(origin: string, of: 'session' | 'browser' | 'sign_on'): string {
  return `sluice_${of}_${new URL(origin).port}`;
}

/** A page of the console: keeps cookies, and sends the headers that a browser's page sends. */
export class ConsolePage {
  readonly cookies = new Map<string, string>();
  readonly #origin: string;

  constructor(origin: string) {
    this.#origin = origin;
  }

  async ask(
    method: string,
    path: string,
    body?: object,
    headers: Record<string, string> = {},
  ): Promise<Answer> {
    const response = await fetch(`${this.#origin}/admin/v1${path}`, {
      method,
      headers: {
        cookie: [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; '),
        origin: this.#origin,
        'sec-fetch-site': 'same-origin',
        'sluice-console': '1',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      if (value === '') this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    return {
      status: response.status,
      body: (await response.json()) as Record<string, unknown>,
      headers: response.headers,
    };
  }

  signIn(email: string, more: object = {}): Promise<Answer> {
    return this.ask('POST', '/session', { email, password, ...more });
  }
}

/** Invites a person on the command line; settles with the secret of the invitation. */
export async function invite(
  sluice: Pick<Deployment, 'admin'>,
  email: string,
  role: Role,
  accountId?: string,
): Promise<string> {
  const account = accountId === undefined ? [] : ['--account', accountId];
  const { url } = (await sluice.admin('people', 'invite', email, '--role', role, ...account)) as {
    url: string;
  };
  return new URL(url).hash.slice(1);
}

/** Invites a person who then chooses the password; settles with their page, which is signed in. */
export async function signedIn(
  sluice: Pick<Deployment, 'admin' | 'adminUrl'>,
  email: string,
  role: Role,
  accountId?: string,
): Promise<ConsolePage> {
  const page = new ConsolePage(sluice.adminUrl);
  const invitation = await invite(sluice, email, role, accountId);
  const { status, body } = await page.ask('POST', '/invitation/accept', { invitation, password });
  if (status !== 200) throw new Error(`not accepted: ${status} ${JSON.stringify(body)}`);
  return page;
}
