// What the mobile surfaces share: one client of the core, with pairing, its gesture, and screen views. `configure` makes it; it is
// connected to the phone as soon as the phone is known. A surface is a thin object over this with exactly its platform's operations.

import { type Client, createClient } from '../core/client.js';
import { clientLimits } from '../core/limits.js';
import { createStoredProperties } from '../core/stored-properties.js';
import type { DeviceAdapters, PairingAdapters } from './adapters.js';
import { attempt } from './attempt.js';
import { createGesture } from './gesture.js';
import { createDeviceLifecycle } from './lifecycle.js';
import { type MobileOptions, type ReadOptions, readOptions } from './options.js';
import { createPairing } from './pairing.js';
import { platform, warnInConsole } from './runtime.js';
import { createLoadedStorage } from './storage.js';
import { createFetchTransport } from './transport.js';

type Device = DeviceAdapters & PairingAdapters;

export type Mobile = ReturnType<typeof createMobile>;

/** Makes the base of a surface. Nothing happens before `configure`, and nothing throws. */
export function createMobile() {
  let options: ReadOptions | undefined;
  /** The client and its parts, from `configure` on. */
  let wired: ReturnType<typeof wire> | undefined;
  let device: Device | undefined;
  let appId: string | undefined;
  let show = warnInConsole;
  const gesture = createGesture(startPairing);

  /** Takes the options. Those of a later call apply from the next start on, except that the runtime stays. */
  function configure(given: MobileOptions): void {
    const read = readOptions(given);
    if ('fault' in read) {
      if (wired === undefined) show = read.warn;
      warn(`configure is ignored: ${read.fault}.`);
      return;
    }
    options = read;
    show = read.warn;
    wired ??= wire(read);
  }

  function wire({ clock, randomBytes }: ReadOptions) {
    const storage = createLoadedStorage(clock, warn);
    const lifecycle = createDeviceLifecycle();
    const transport = createFetchTransport(clock, () => device?.fetch);
    const client = createClient({
      storage,
      propertyStore: createStoredProperties(storage),
      lifecycle,
      transport,
      clock,
      randomBytes,
      warn: (line) => show(line),
    });
    const pairing = createPairing({ client, transport, clock, display: () => device });
    return { client, storage, lifecycle, pairing };
  }

  /** Shows one line to the developer. */
  function warn(line: string): void {
    if (wired !== undefined) return wired.client.warn(line);
    try {
      show(`Sluice: ${line}`);
    } catch {
      // The console itself throws, so the error cannot be reported.
    }
  }

  /** Takes the phone; only the first call counts. `configure` must be called before. */
  function attach(given: Device): void {
    if (wired === undefined || device !== undefined) return;
    const { storage, lifecycle } = wired;
    const attached = given ?? {};
    device = attached;
    if ((attempt(warn, 'fetch', () => attached.fetch) ?? platform.fetch) === undefined) {
      warn('nothing can be sent: there is no fetch, and none was given.');
    }
    lifecycle.listen(attached, warn);
    gesture.listen(attached, warn);
    attempt(warn, 'onScreen', () => attached.onScreen?.(viewScreen));
    void storage
      .load(attempt(warn, 'storage', () => attached.storage))
      .then(lifecycle.ready, lifecycle.ready);
  }

  function viewScreen(name: unknown): void {
    if (options?.screenViews !== true) return;
    if (typeof name === 'string' && name !== '')
      wired?.client.autocapture('Screen View', { screen_name: name });
    else warn('a screen view is dropped: the screen has no name.');
  }

  /** `operation`: the platform's name for this operation. */
  function start(operation: string, nextAppId: string): void {
    run(operation, (client) => {
      if (options === undefined) return;
      if (typeof nextAppId === 'string' && nextAppId !== '') {
        if (nextAppId !== appId) wired?.pairing.stop();
        appId = nextAppId;
      }
      client.start(nextAppId, {
        baseUrl: options.baseUrl,
        intervalMs: clientLimits.mobileIntervalMs,
        sessionIdleMs: clientLimits.mobileSessionIdleMs,
        sessionPerStart: true,
        optedOut: options.optedOut,
        allowIdentities: options.allowIdentities,
        onAnswer: (_, answer, secret) => wired?.pairing.onAnswer(answer, secret),
      });
    });
  }

  /** Runs an operation on the client. Only warns if `configure` was not called, or if the operation throws. */
  function run(operation: string, work: (client: Client) => void): void {
    if (wired === undefined) {
      warn(`${operation} is ignored: call configure({ baseUrl }) first.`);
      return;
    }
    try {
      work(wired.client);
    } catch {
      warn(`${operation} is ignored: its arguments cannot be read.`);
    }
  }

  function startPairing(): void {
    run('startEVPairing', () => {
      if (appId === undefined || options === undefined) return warn('startEVPairing needs an app first.');
      wired?.pairing.start({ appId, baseUrl: options.baseUrl });
    });
  }

  return {
    configure,
    attach,
    start,
    run,
    /** In seconds, above 0. */
    changeInterval: (seconds: number) =>
      run('changeInterval', (client) =>
        client.changeInterval(typeof seconds === 'number' ? seconds * 1000 : Number.NaN),
      ),
    optOut(): void {
      run('optOut', (client) => {
        wired?.pairing.stop();
        client.optOut();
      });
    },
    startPairing,
    stopPairing: () => run('stopEVPairing', () => wired?.pairing.stop()),
    disableGesture: gesture.disable,
    warn,
    get userId(): string | undefined {
      return wired?.client.userId;
    },
    get identity(): string | undefined {
      return wired?.client.identity;
    },
  };
}
