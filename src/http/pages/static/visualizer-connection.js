// The page's connection: pairs by the token and the code, hands on what comes, and connects again after a
// drop until the service says that the pairing is over.

const retryMs = [500, 1000, 2000, 4000, 8000, 15000];

/**
 * Connects. `on` is told `{type: "paired" | "batch" | "missed" | "gap" | "ended" | "refused", …}` as the
 * service says it, and `{type: "connecting"}`, `{type: "lost", stopping, retryInMs}` of the connection itself.
 */
export function connect(token, code, on) {
  let socket;
  let timer;
  let attempts = 0;
  let wasPaired = false;
  let over = false;

  function open() {
    clearTimeout(timer);
    on({ type: 'connecting' });
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
    // The cookie of a session of the console is sent below /admin/v1 only.
    const path = token === undefined ? '/admin/v1/visualizer/live' : '/visualizer/live';
    const opened = new WebSocket(`${scheme}//${location.host}${path}`);
    socket = opened;
    opened.onopen = () => opened.send(JSON.stringify({ token, code }));
    opened.onmessage = ({ data }) => hear(JSON.parse(data));
    opened.onclose = ({ code: closeCode }) => dropped(closeCode);
  }

  function hear(said) {
    if (said.type === 'paired') {
      attempts = 0;
      wasPaired = true;
    }
    // Redis being away passes; the connection is tried again.
    if (said.type === 'refused' && said.reason === 'unavailable') return;
    if (said.type === 'ended' || said.type === 'refused') over = true;
    on(said);
  }

  function dropped(closeCode) {
    if (over) return;
    const retryInMs = retryMs[Math.min(attempts, retryMs.length - 1)];
    attempts += 1;
    on({ type: 'lost', stopping: closeCode === 1001, unavailable: closeCode === 1013, wasPaired, retryInMs });
    timer = setTimeout(open, retryInMs);
  }

  function retryNow() {
    if (!over && socket.readyState === WebSocket.CLOSED) open();
  }

  addEventListener('online', retryNow);
  open();
  return {
    /** Ends the pairing for the device too; without a connection only this page leaves it. */
    end() {
      if (socket.readyState === WebSocket.OPEN) return socket.send(JSON.stringify({ type: 'end' }));
      leave();
      on({ type: 'ended', message: 'This page has left the pairing; it ends within a minute.' });
    },
    leave,
  };

  function leave() {
    over = true;
    clearTimeout(timer);
    removeEventListener('online', retryNow);
    socket.close(1000);
  }
}
