// The Event Visualizer's connection: pairs with token and code, passes on what arrives, and reconnects when the connection is lost, until
// the service says that the pairing is over.

import type { Said } from './state.js';

export type Connection = ReturnType<typeof connect>;

const retryMsMin = 500;
const retryMsMax = 15_000;

/** Connects. Without a token, the service identifies the person who is signed in to the console. */
export function connect(token: string | undefined, code: string, on: (said: Said) => void) {
  let socket: WebSocket;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let attempts = 0;
  let wasPaired = false;
  let isOver = false;

  function open(): void {
    clearTimeout(timer);
    on({ type: 'connecting' });
    // Browsers send the cookie of a console session only to paths below /admin/v1.
    const path = token === undefined ? '/admin/v1/visualizer/live' : '/visualizer/live';
    const opened = new WebSocket(`${location.origin.replace('http', 'ws')}${path}`);
    socket = opened;
    opened.onopen = () => opened.send(JSON.stringify({ token, code }));
    opened.onmessage = ({ data }) => hear(JSON.parse(data) as Said);
    opened.onclose = ({ code: closeCode }) => dropped(closeCode);
  }

  function hear(said: Said): void {
    if (said.type === 'paired') {
      attempts = 0;
      wasPaired = true;
    }
    // Redis is temporarily away, so the connection is tried again.
    if (said.type === 'refused' && said.reason === 'unavailable') return;
    if (said.type === 'ended' || said.type === 'refused') isOver = true;
    on(said);
  }

  function dropped(closeCode: number): void {
    if (isOver) return;
    const retryInMs = Math.min(retryMsMin * 2 ** attempts, retryMsMax);
    attempts += 1;
    on({ type: 'lost', closeCode, wasPaired, retryInMs });
    timer = setTimeout(open, retryInMs);
  }

  const retryNow = () => {
    if (!isOver && socket.readyState === WebSocket.CLOSED) open();
  };
  const leave = () => {
    isOver = true;
    clearTimeout(timer);
    removeEventListener('online', retryNow);
    socket.close(1000);
  };

  addEventListener('online', retryNow);
  open();
  return {
    /** Ends the pairing for the device as well. Without a connection, only this page leaves the pairing. */
    end(): void {
      if (socket.readyState === WebSocket.OPEN) return socket.send(JSON.stringify({ type: 'end' }));
      leave();
      on({ type: 'ended', message: 'This page has left the pairing; it ends within a minute.' });
    },
    leave,
  };
}
