// An OpenID Connect provider for tests of single sign-on, and a browser that goes there and back. A test can change the answers of the
// token endpoint to what no real provider sends.

import { createHmac, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import Provider from 'oidc-provider';

export type Claims = Readonly<Record<string, unknown>>;

export type TestProvider = {
  readonly people: Map<string, Claims>;
  /** The subject of the person who signs in next. */
  subject: string;
  /** Changes ID tokens on their way to the service. */
  forge: ((idToken: string) => string) | undefined;
  /** Whether the provider gives the last tokens again for any code, which is forbidden. */
  repeats: boolean;
  close(): Promise<void>;
};

export const client = { id: 'sluice', secret: 'a secret of the client' } as const;

/** The provider's key. It stays the same in this process, since the service caches its public half. */
export const providerKey = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;
const kid = 'a key of the provider';

/** An ID token with changed claims, signed by the provider's key, another key or a secret, or not at all. */
export function signedAnew(
  idToken: string,
  more: Claims,
  alg: 'RS256' | 'HS256' | 'none' = 'RS256',
  key: KeyObject | string = providerKey,
): string {
  const claims = JSON.parse(Buffer.from(idToken.split('.')[1] ?? '', 'base64url').toString());
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const text = `${part({ alg, kid, typ: 'JWT' })}.${part({ ...claims, ...more })}`;
  if (alg === 'none') return `${text}.`;
  const signature =
    typeof key === 'string'
      ? createHmac('sha256', key).update(text).digest()
      : sign('sha256', Buffer.from(text), key);
  return `${text}.${signature.toString('base64url')}`;
}

/** Starts a provider at the port; it lets in the person that `subject` names. */
export async function startProvider(port: number, returnTo: string): Promise<TestProvider> {
  const people = new Map<string, Claims>();
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    jwks: { keys: [{ ...providerKey.export({ format: 'jwk' }), kid, alg: 'RS256', use: 'sig' }] },
    clients: [{ client_id: client.id, client_secret: client.secret, redirect_uris: [returnTo] }],
    claims: { openid: ['sub', 'sluice_role'], email: ['email', 'email_verified'] },
    features: { devInteractions: { enabled: false } },
    pkce: { required: () => true, methods: ['S256'] },
    cookies: { keys: ['a key of the cookies'] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...people.get(id) }) }),
    loadExistingGrant: async ({ oidc }) => {
      const grant = new oidc.provider.Grant({
        clientId: oidc.client?.clientId as string,
        accountId: oidc.session?.accountId as string,
      });
      grant.addOIDCScope('openid email');
      await grant.save();
      return grant;
    },
  });
  const test: Omit<TestProvider, 'close'> = { people, subject: '', forge: undefined, repeats: false };
  const handle = provider.callback();
  let tokens: string | undefined;
  /** Changes the answer that the provider will give. */
  const tamper = (res: ServerResponse) => {
    const end = res.end.bind(res);
    const changed = (body: string) => {
      const answer = JSON.parse(body) as { id_token?: string };
      if (answer.id_token !== undefined && test.forge !== undefined)
        answer.id_token = test.forge(answer.id_token);
      tokens = JSON.stringify(answer);
      res.setHeader('content-length', Buffer.byteLength(tokens));
      return end(tokens);
    };
    Object.assign(res, { end: changed });
  };
  const server: Server = createServer((req, res) => {
    if (req.url === '/token') {
      if (test.repeats && tokens !== undefined)
        return void res.setHeader('content-type', 'application/json').end(tokens);
      tamper(res);
    }
    if (!req.url?.startsWith('/interaction/')) return void handle(req, res);
    void provider.interactionFinished(req, res, { login: { accountId: test.subject } });
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return Object.assign(test, {
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  });
}

/** A browser with a cookie jar for each origin. */
export class SignOnBrowser {
  readonly #console: string;
  readonly #jars = new Map<string, Map<string, string>>();

  constructor(consoleOrigin: string) {
    this.#console = consoleOrigin;
  }

  cookies(origin = this.#console): Map<string, string> {
    const jar = this.#jars.get(origin) ?? new Map<string, string>();
    this.#jars.set(origin, jar);
    return jar;
  }

  /** Requests an address; settles with the status, and where it redirects to. */
  async go(url: string, site: 'same-origin' | 'cross-site'): Promise<{ status: number; to: string }> {
    const jar = this.cookies(new URL(url).origin);
    const response = await fetch(url, {
      redirect: 'manual',
      headers: {
        cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; '),
        'sec-fetch-site': site,
      },
    });
    await response.arrayBuffer();
    for (const cookie of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      if (value === '') jar.delete(name);
      else jar.set(name, value);
    }
    const location = response.headers.get('location');
    return { status: response.status, to: location === null ? '' : new URL(location, url).href };
  }

  /** Goes to the provider and through it; settles with the address that leads back. */
  async goThere(): Promise<string> {
    let { to } = await this.go(`${this.#console}/admin/v1/sign_on`, 'same-origin');
    for (let hops = 0; hops < 10 && !to.startsWith(this.#console); hops += 1)
      ({ to } = await this.go(to, 'cross-site'));
    return to;
  }

  /** Signs in; settles with the path that it ends at. */
  async signOn(): Promise<string> {
    const { to } = await this.go(await this.goThere(), 'cross-site');
    return to.slice(this.#console.length);
  }
}
