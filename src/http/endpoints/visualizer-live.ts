// The administrators' side of the Event Visualizer: the WebSocket /visualizer/live on ADMIN_PORT. A page has five seconds to send a code,
// with ADMIN_TOKEN or as a person who is signed in to the console and may watch what arrives in the device's environment. That leaves a
// line in the audit log. Then it receives what that device sends, until the page or the device ends the pairing. A page that reads too
// slowly misses batches, and is told how many messages it missed.

import type {
  HttpRequest,
  HttpResponse,
  TemplatedApp,
  us_socket_context_t,
  WebSocket,
  WebSocketBehavior,
} from 'uWebSockets.js';
import { setTimeout as pause } from 'node:timers/promises';
import type { WatchAccess } from '../../accounts/access-watch.js';
import { refusalOf } from '../../admin/access.js';
import { commands } from '../../admin/commands.js';
import { visualizer } from '../../contract/limits.js';
import { mayDo } from '../../contract/roles.js';
import type { Channel, ChannelMessage } from '../../insights/visualizer/channel.js';
import {
  countFailure,
  endPairing,
  enterCode,
  type Failure,
  findPairingByCode,
  hasTooManyFailures,
  type Pairing,
  renewPairing,
} from '../../insights/visualizer/pairings.js';
import { createUnpairedPages } from '../../insights/visualizer/unpaired-pages.js';
import type { Log } from '../../log.js';
import { parseDocument } from '../../parsing/document.js';
import type { Redis } from '../../redis/client.js';
import { type AuditOptions, audited } from '../../registry/audit/audit.js';
import { type CallerAddress, networkOf } from '../protocol/caller-address.js';
import { isOwnFault, noteFault } from '../protocol/failed.js';
import { readFraming } from '../protocol/framing.js';
import { isSameOrigin } from '../protocol/same-origin.js';
import type { WrongTokens } from '../protocol/wrong-tokens.js';
import {
  type AdminCaller,
  type AdminCallers,
  administratorOf,
  cookieNamesOf,
  findCaller,
  readCookie,
} from './admin-caller.js';

export type LiveOptions = {
  readonly adminToken: string;
  /** The origin of the console. */
  readonly adminBaseUrl: string;
  readonly callerAddress: CallerAddress;
  readonly callers: AdminCallers;
  readonly audit: AuditOptions;
  readonly accountOf: (appId: string) => string | undefined;
  readonly watchAccess: WatchAccess;
  readonly wrongTokens: WrongTokens;
  readonly redis: Redis;
  readonly channel: Channel;
  /** The deployment's secret; undefined until it was read from Redis. */
  readonly secret: () => string | undefined;
  /** Called when the connection of a page is gone. */
  readonly onDisconnected: () => void;
  readonly log: Log;
};

export type LivePages = {
  attach(app: TemplatedApp): void;
  /** Tells all pages that the service stops. */
  close(): void;
};

/** Why a page is disconnected, with the close code and the text that it shows. */
const refusals = {
  off: [4403, 'The visualizer is off: set ADMIN_TOKEN where the service runs, and start it again.'],
  wrong_token: [4401, 'This is not the ADMIN_TOKEN of this service.'],
  signed_out: [4401, 'Sign in to the console, or enter the ADMIN_TOKEN.'],
  forbidden: [4403, 'Your role does not let you watch what arrives. Enter the ADMIN_TOKEN.'],
  wrong_code: [
    4404,
    'No device is waiting with this code. A code is valid for ten minutes; start pairing again.',
  ],
  full: [4429, 'Your account has the maximum number of open pages. Close one of them.'],
  limited: [4429, 'Too many wrong codes from this address. Wait a minute.'],
  late: [4408, 'Nothing was sent in time.'],
  unreadable: [1008, 'That was not understood.'],
  unavailable: [1013, 'The service cannot reach Redis now.'],
  failed: [1011, 'The service had an internal error.'],
} as const;

const endings = {
  device: 'The device has ended the pairing.',
  page: 'The pairing was ended on a page of the visualizer.',
  expired: 'The pairing has expired. Start pairing again on the device.',
} as const;
const path = '/visualizer/live';
/** The same socket, at a path where browsers send the session cookie. */
const pathOfPeople = '/admin/v1/visualizer/live';
/** The roles of people who may watch devices: those who may watch events. */
const mayWatch = commands.watchLive.may;
const endedCode = 4000;
const stoppingCode = 1001;

/** The state of a connection. Once it is gone, its socket must not be touched: any use would throw. */
type Page = {
  socket?: WebSocket<Page>;
  stage: 'new' | 'asked' | 'live' | 'gone';
  /** The timer of the first message's deadline; once the page is live, of the renewals. */
  timer?: NodeJS.Timeout;
  pairing?: Pairing;
  share?: Share;
  isEnding: boolean;
  leave?: () => void;
  missed: number;
  /** Whether the page was told to disconnect. Its connection may stay open for a while. */
  isClosing: boolean;
  /** Called when the page is paired or gone. */
  readonly endUnpaired: () => void;
  readonly address: string;
  /** The network under which its wrong tokens and codes are counted. */
  readonly network: string;
  /** The cookie of a console session, used if the page sends no token. */
  readonly cookie?: string;
  /** Stops watching whether the person at the page still has access. */
  endWatch?: () => void;
};

/** What the pages of an account use of this process: their number, and the bytes that they received in this second. */
type Share = { readonly account: string; pages: number; bytes: number; sinceMs: number };

/** The last message to a page that is disconnected. */
type ClosingMessage = {
  readonly type: 'refused' | 'ended';
  readonly reason: string;
  readonly message: string;
};

export function createLivePages(options: LiveOptions): LivePages {
  const { redis, channel, log } = options;
  const pages = new Set<Page>();
  const countUnpaired = createUnpairedPages();
  const shares = new Map<string, Share>();

  /** Wraps work for a page, so that an error of ours disconnects only that page. */
  function guard<Args extends unknown[]>(page: Page, work: (...args: Args) => unknown) {
    const fail = (error: unknown) => {
      noteFault(log, path, error);
      refuse(page, 'failed');
    };
    return (...args: Args): void => {
      try {
        const working = work(...args);
        if (working instanceof Promise) working.catch(fail);
      } catch (error) {
        fail(error);
      }
    };
  }

  function upgrade(res: HttpResponse, req: HttpRequest, context: us_socket_context_t): void {
    if (!isSameOrigin(req, options.adminBaseUrl)) return void res.writeStatus('403 Forbidden').end();
    const address = options.callerAddress(res.getRemoteAddressAsText(), readFraming(req));
    const network = networkOf(address);
    const isOwnName = options.callers.faultOfName(req) === undefined;
    const endUnpaired = pages.size >= visualizer.pagesMax ? undefined : countUnpaired(network);
    if (endUnpaired === undefined) return void res.writeStatus('503 Service Unavailable').end();
    const page: Page = {
      stage: 'new',
      isEnding: false,
      missed: 0,
      isClosing: false,
      endUnpaired,
      address,
      network,
      cookie: isOwnName ? readCookie(req, cookieNamesOf(req).session) : undefined,
    };
    res.upgrade(
      page,
      req.getHeader('sec-websocket-key'),
      req.getHeader('sec-websocket-protocol'),
      req.getHeader('sec-websocket-extensions'),
      context,
    );
  }

  function open(socket: WebSocket<Page>): void {
    const page = socket.getUserData();
    page.socket = socket;
    pages.add(page);
    page.timer = setTimeout(
      guard(page, () => refuse(page, 'late')),
      visualizer.helloMsMax,
    );
  }

  function message(socket: WebSocket<Page>, bytes: ArrayBuffer): unknown {
    const page = socket.getUserData();
    // The message was under way when the page was told to disconnect, or asked to end.
    if (isGone(page) || page.isEnding) return undefined;
    const request = readMessage(bytes);
    if (page.stage === 'new' && request?.kind === 'hello') {
      page.stage = 'asked';
      clearTimeout(page.timer);
      return enter(page, request.token, request.code).catch((error: unknown) => {
        if (isOwnFault(error)) throw error;
        log.warn({ error }, 'a page of the visualizer could not be paired');
        refuse(page, 'unavailable');
      });
    }
    if (page.stage === 'live' && request?.kind === 'end') return end(page);
    return refuse(page, 'unreadable');
  }

  /** Who has the token, or else the person whose session has not ended. */
  async function watcherOf({ cookie, address }: Page, token?: string): Promise<AdminCaller | undefined> {
    if (token !== undefined) return administratorOf(options.adminToken, token, address);
    return cookie === undefined ? undefined : findCaller(redis, cookie, address);
  }

  function maySee(watcher: AdminCaller | undefined, appId: string): boolean {
    const accountId = options.accountOf(appId);
    if (watcher === undefined || accountId === undefined) return false;
    return refusalOf(watcher.principal, mayWatch, accountId) === undefined;
  }

  async function enter(page: Page, token: string | undefined, code: string): Promise<void> {
    const secret = options.secret();
    if (secret === undefined) return refuse(page, 'unavailable');
    const { network } = page;
    const wrong = async (failure: Failure) => {
      const limited = await countFailure(redis, secret, network, failure);
      refuse(page, limited ? 'limited' : `wrong_${failure}`);
    };
    const watcher = await watcherOf(page, token);
    if (watcher === undefined && token === undefined) return refuse(page, 'signed_out');
    if (watcher === undefined && options.adminToken === '') return refuse(page, 'off');
    if (watcher === undefined) {
      await options.wrongTokens.delay();
      return wrong('token');
    }
    if (!mayDo(watcher.principal.role, mayWatch)) return refuse(page, 'forbidden');
    // A right code is never refused, however many wrong ones came before; but after too many guesses every answer is delayed.
    if (await hasTooManyFailures(redis, secret, network, 'code')) await pause(visualizer.guessMs);
    const pairing = await findPairingByCode(redis, code);
    // The code of another account's device is answered like one that does not exist.
    if (pairing === undefined || !maySee(watcher, pairing.appId)) return wrong('code');
    if (isGone(page)) return;
    if (!hasRoom(page, watcher)) return refuse(page, 'full');
    // Listens before it enters the code, so that no message is missed that the device sends because of it. A message may then be shown
    // before the page knows that it is paired.
    const leave = await channel.listen(
      pairing.id,
      guard(page, (shown: ChannelMessage) => show(page, shown)),
    );
    if (isGone(page)) return leave();
    page.leave = leave;
    const { id, appId } = pairing;
    const entered = await audited(
      options.audit,
      watcher.actor,
      { action: 'watch_device', account_id: options.accountOf(appId), app_id: appId, details: {} },
      () => enterCode(redis, code),
      {
        endingOf: (found) => ({ outcome: found === undefined ? 'refused' : 'done' }),
        outcomeOfError: () => 'unknown',
      },
    );
    if (isGone(page)) return;
    if (entered !== id) return wrong('code');
    page.pairing = pairing;
    page.stage = 'live';
    page.endUnpaired();
    page.endWatch = options.watchAccess(
      async () => maySee(await watcher.again(), appId),
      guard(page, () => cutOff(page)),
    );
    page.timer = setInterval(
      guard(page, () => renew(page, pairing)),
      visualizer.renewEveryMs,
    );
    send(page, { type: 'paired', app_id: appId });
  }

  function show(page: Page, shown: ChannelMessage): void {
    if (isGone(page)) return;
    if (shown.kind === 'ended') return finish(page, shown.by);
    if (shown.kind === 'gap') return void send(page, { type: 'gap' });
    tellMissed(page);
    const sent = page.missed === 0 && mayGet(page, shown.json.length) && sendText(page, shown.json);
    if (!sent) page.missed += shown.count;
  }

  /** Counts a page for the account of a person, unless they are an operator. False if the account already has the maximum. */
  function hasRoom(page: Page, { principal }: AdminCaller): boolean {
    if (principal.role === 'operator') return true;
    const { accountId: account } = principal;
    const share = shares.get(account) ?? { account, pages: 0, bytes: 0, sinceMs: 0 };
    if (share.pages >= visualizer.pagesOfAccountMax) return false;
    share.pages += 1;
    shares.set(account, share);
    page.share = share;
    return true;
  }

  /** Renews the pairing. While Redis is away the page stays: the pairing may still be live when Redis is back. */
  async function renew(page: Page, { id }: Pairing): Promise<void> {
    const isLive = await renewPairing(redis, id).catch(() => true);
    if (!isLive) finish(page, 'expired');
  }

  async function end(page: Page): Promise<void> {
    const { pairing } = page;
    if (pairing === undefined) return;
    page.isEnding = true;
    try {
      await endPairing(redis, pairing.id, pairing.appId);
      await channel.publish(pairing.id, { kind: 'ended', by: 'page' });
    } catch (error) {
      page.isEnding = false;
      log.warn({ error }, 'a pairing could not be ended, and will expire');
    }
  }

  function close(page: Page): void {
    page.stage = 'gone';
    page.socket = undefined;
    clearTimeout(page.timer);
    page.endWatch?.();
    page.endUnpaired();
    if (page.share !== undefined && --page.share.pages === 0) shares.delete(page.share.account);
    if (page.isClosing) setTimeout(options.onDisconnected, visualizer.closingMsMax).unref();
    else options.onDisconnected();
    page.leave?.();
    pages.delete(page);
  }

  return {
    attach: (app) => {
      const behavior: WebSocketBehavior<Page> = {
        maxPayloadLength: visualizer.helloBytesMax,
        maxBackpressure: visualizer.backpressureBytesMax,
        idleTimeout: 60,
        sendPingsAutomatically: true,
        upgrade,
        open: (socket) => guard(socket.getUserData(), open)(socket),
        message: (socket, bytes) => guard(socket.getUserData(), message)(socket, bytes),
        drain: (socket) => guard(socket.getUserData(), tellMissed)(socket.getUserData()),
        close: (socket) => guard(socket.getUserData(), close)(socket.getUserData()),
      };
      for (const each of [path, pathOfPeople]) app.ws<Page>(each, behavior);
    },
    close: () => {
      for (const page of [...pages]) page.socket?.end(stoppingCode, 'stopping');
    },
  };
}

function finish(page: Page, reason: keyof typeof endings): void {
  sendAndClose(page, endedCode, { type: 'ended', reason, message: endings[reason] });
}

/** For a person who may no longer watch: drops what still waits to be sent to a page that does not read. */
function cutOff(page: Page): void {
  refuse(page, 'signed_out');
  if ((page.socket?.getBufferedAmount() ?? 0) > 0) page.socket?.close();
}

function refuse(page: Page, reason: keyof typeof refusals): void {
  const [code, message] = refusals[reason];
  sendAndClose(page, code, { type: 'refused', reason, message });
}

function sendAndClose(page: Page, code: number, words: ClosingMessage): void {
  send(page, words);
  page.isClosing = true;
  page.socket?.end(code, words.reason);
}

/**
 * To be asked after every await, since the connection may be gone. A page that was told to leave gets nothing more, even if it stays
 * connected.
 */
function isGone(page: Page): boolean {
  return page.stage === 'gone' || page.isClosing;
}

/** Whether the account's pages may receive this many more bytes in this second. Sending to them is the service's largest cost. */
function mayGet({ share }: Page, bytes: number): boolean {
  if (share === undefined) return true;
  const nowMs = performance.now();
  const { max, windowMs } = visualizer.bytesOfAccount;
  if (nowMs - share.sinceMs >= windowMs) Object.assign(share, { bytes: 0, sinceMs: nowMs });
  if (share.bytes + bytes > max) return false;
  share.bytes += bytes;
  return true;
}

function tellMissed(page: Page): void {
  if (page.missed > 0 && send(page, { type: 'missed', count: page.missed })) page.missed = 0;
}

function send(page: Page, words: object): boolean {
  return sendText(page, JSON.stringify(words));
}

/** Whether the text was accepted. It is not while too much is waiting to be sent to the page. */
function sendText({ socket }: Page, text: string): boolean {
  return socket !== undefined && socket.send(text) !== 2;
}

type PageRequest =
  | { readonly kind: 'hello'; readonly token: string | undefined; readonly code: string }
  | { readonly kind: 'end' };

function readMessage(bytes: ArrayBuffer): PageRequest | undefined {
  const document = parseDocument(Buffer.from(bytes));
  if ('code' in document) return undefined;
  const { value } = document;
  if (typeof value !== 'object' || value === null) return undefined;
  const { type, token, code } = value as Record<string, unknown>;
  if (type === 'end') return { kind: 'end' };
  if ((token === undefined || typeof token === 'string') && typeof code === 'string')
    return { kind: 'hello', token, code };
  return undefined;
}
