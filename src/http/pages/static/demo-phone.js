// The demo's phone: the iOS surface of the client library, with this page as its device. It is another user than
// the page's, in a storage of its own.

import { createIosSluice } from '/demo/sluice-ios.js';
import { askNow, beforeAsking, rememberUser } from './demo-arrived.js';
import { beginCall, mark, noteCall } from './demo-calls.js';

const { appId, baseUrl } = document.body.dataset;
const by = (id) => document.getElementById(id);
/** So that what the phone keeps is not taken for what the page's library keeps. */
const prefix = 'phone:';

const storage = {
  getItem: (key) => localStorage.getItem(prefix + key),
  setItem: (key, text) => localStorage.setItem(prefix + key, text),
  removeItem: (key) => localStorage.removeItem(prefix + key),
  getAllKeys: () =>
    Object.keys(localStorage)
      .filter((key) => key.startsWith(prefix))
      .map((key) => key.slice(prefix.length)),
};

const appState = {
  addEventListener: (_, listener) =>
    document.addEventListener('visibilitychange', () => listener(document.hidden ? 'background' : 'active')),
};

function onScreen(listener) {
  for (const button of document.querySelectorAll('[data-screen]')) {
    button.addEventListener('click', () => {
      by('phone-screen').textContent = button.dataset.screen;
      listener(button.dataset.screen);
    });
  }
}

function showPairingCode(code) {
  by('phone-code').textContent = code;
  by('phone-words').textContent = 'Enter this code in the visualizer.';
  by('phone-link').href = `/visualizer#code=${encodeURIComponent(code)}`;
}

function hidePairingCode() {
  by('phone-code').textContent = '';
  by('phone-words').textContent = 'Shake to pair.';
  by('phone-link').href = '/visualizer';
}

const phone = createIosSluice();
phone.configure({
  baseUrl,
  storage,
  appState,
  onScreen,
  onShake: (listener) => by('shake').addEventListener('click', listener),
  onOnline: (listener) => addEventListener('online', listener),
  showPairingCode,
  hidePairingCode,
  warn(line) {
    console.warn(line);
    by('phone-words').textContent = line.replace(/^Sluice: /, '');
  },
});
phone.changeInterval(1);
phone.setAppId(appId);
hidePairingCode();

by('unpair').addEventListener('click', () => phone.stopEVPairing());
by('tap').addEventListener('click', () => {
  const call = mark();
  beginCall();
  phone.track('Bought', { item: 'A-113', price: 12.5, call });
  noteCall('phone: track("Bought", …)', ({ events }) =>
    events.some((event) => event.properties.call === call),
  );
  askNow();
});
beforeAsking(() => rememberUser(phone.userId));
