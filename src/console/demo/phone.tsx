// The demo's phone: the iOS surface of the client library, with this page as its device. It has its own user and its own storage.

import { signal } from '@preact/signals';
import { createIosSluice } from '../../libraries/client/ios.js';
import { Button } from '../parts/form.js';
import { hasEvent, makeCall, mark } from './calls.js';

/** Separates what the phone stores from what the page's library stores. */
const prefix = 'phone:';
const atRest = { code: '', words: 'Shake to pair.' };
const shown = signal(atRest);
const screen = signal('Home');
let show = (_screen: string): void => {};
let shake = (): void => {};

export const phone = createIosSluice();

export function startPhone(appId: string, baseUrl: string): void {
  phone.configure({
    baseUrl,
    storage: {
      getItem: (key) => localStorage.getItem(prefix + key),
      setItem: (key, text) => localStorage.setItem(prefix + key, text),
      removeItem: (key) => localStorage.removeItem(prefix + key),
      getAllKeys: () =>
        Object.keys(localStorage)
          .filter((key) => key.startsWith(prefix))
          .map((key) => key.slice(prefix.length)),
    },
    appState: {
      addEventListener: (_, listener) =>
        document.addEventListener('visibilitychange', () =>
          listener(document.hidden ? 'background' : 'active'),
        ),
    },
    onScreen: (listener) => {
      show = listener;
    },
    onShake: (listener) => {
      shake = listener;
    },
    onOnline: (listener) => addEventListener('online', listener),
    showPairingCode: (code) => {
      shown.value = { code, words: 'Enter this code in the visualizer.' };
    },
    hidePairingCode: () => {
      shown.value = atRest;
    },
    warn: (line) => {
      console.warn(line);
      shown.value = { ...shown.value, words: line.replace(/^Sluice: /, '') };
    },
  });
  phone.changeInterval(1);
  phone.setAppId(appId);
}

function open(name: string): void {
  screen.value = name;
  show(name);
}

function tap(): void {
  const call = mark();
  makeCall(phone, 'phone: track("Bought", …)', () => {
    phone.track('Bought', { item: 'A-113', price: 12.5, call });
    return hasEvent(call);
  });
}

export function Phone() {
  const { code, words } = shown.value;
  return (
    <section class="card phone" aria-label="A phone">
      <div class="screen" aria-live="polite">
        <p class="muted">{screen}</p>
        <p class="code">{code}</p>
        <p class="muted message">{words}</p>
      </div>
      <div>
        <h2>
          A phone <span class="muted">· the iOS surface of the library</span>
        </h2>
        <p>
          Shake it, and it shows a code. Open the{' '}
          <a
            href={code === '' ? '/visualizer' : `/visualizer#code=${encodeURIComponent(code)}`}
            target="_blank"
            rel="noopener"
          >
            Event Visualizer
          </a>
          , enter it there, signed in to the <a href="/live">console</a> or with <code>ADMIN_TOKEN</code> (the
          start printed where it is), and watch what the phone sends.
        </p>
        <div class="buttons">
          <Button text="Shake" kind="primary" act={() => shake()} />
          <Button text="Stop pairing" act={() => phone.stopEVPairing()} />
          <Button text="Home" act={() => open('Home')} />
          <Button text="Basket" act={() => open('Basket')} />
          <Button text="Tap “Buy”" act={tap} />
        </div>
      </div>
    </section>
  );
}
