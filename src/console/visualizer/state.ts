// The state of the Event Visualizer, and how it changes with what the service says.

/** A message as a device sent it, with the answer. The fields may hold anything. */
export type Message = Readonly<Record<string, unknown>> & {
  readonly answer?: Readonly<Record<string, string | number>>;
};

/** What the service says, and what happens to the connection itself. */
export type Said = Readonly<
  | { type: 'paired'; app_id: string }
  | { type: 'batch'; messages: readonly Message[]; at: string; left_out: number }
  | { type: 'missed'; count: number }
  | { type: 'refused'; reason: string; message: string }
  | { type: 'ended'; message: string }
  | { type: 'gap' | 'connecting' }
  | { type: 'lost'; closeCode: number; wasPaired: boolean; retryInMs: number }
>;

export type Shown = { readonly key: number; readonly message: Message; readonly at: string };

const notPaired = { tone: 'plain', status: 'Not paired' };
export const first = {
  phase: 'form' as 'form' | 'paired' | 'ended',
  asksToken: true,
  ...notPaired,
  /** Why no device is paired. */
  problem: '',
  /** What is missing in the list, or why nothing more arrives. */
  notice: '',
  appId: '',
  /** The messages that are shown, and those that arrived during a pause; both from the newest. */
  rows: [] as readonly Shown[],
  held: [] as readonly Shown[],
  isPaused: false,
  counts: {} as Readonly<Record<string, number>>,
  missed: 0,
  /** Since when a page that was paired has been without a connection. */
  lostAt: '',
  /** The element to which the last change moves the focus. */
  focus: { on: 'token' },
};
export type State = Readonly<typeof first>;
type Change = Partial<State>;

/** How many messages are shown, and how many are kept during a pause. Older ones are dropped. */
const messagesMax = 500;
let lastKey = 0;

export function heard(state: State, said: Said): Change {
  switch (said.type) {
    case 'connecting':
      return { tone: 'accent', status: 'Connecting…' };
    case 'paired': {
      // A list is of one environment.
      const change = state.appId === '' || state.appId === said.app_id ? {} : cleared;
      const { lostAt, phase, rows } = { ...state, ...change };
      const missing = `No connection from ${lostAt} to ${clockTime()}: what the device sent meanwhile is not shown.`;
      return {
        ...change,
        phase: 'paired',
        appId: said.app_id,
        notice: lostAt && missing,
        lostAt: '',
        ...(rows.length === 0 ? { tone: 'accent', status: 'Paired · waiting for events' } : live),
        // When a lost connection is back, the focus stays where it is.
        ...(phase === 'form' && { focus: { on: 'pause' } }),
      };
    }
    case 'batch':
      return withBatch(state, said);
    case 'missed':
      return { missed: state.missed + said.count };
    case 'gap':
      return { notice: 'The service was cut off from Redis for a moment: some events may be missing here.' };
    case 'lost': {
      const status = `${whyLost(said)} Connecting again in ${Math.ceil(said.retryInMs / 1000)} s…`;
      return { tone: 'warn', status, ...(said.wasPaired && { lostAt: state.lostAt || clockTime() }) };
    }
    case 'refused': {
      const asksToken = state.asksToken || said.reason === 'forbidden' || said.reason === 'signed_out';
      return {
        ...pairAgain,
        tone: 'bad',
        asksToken,
        problem: said.message,
        appId: state.rows.length === 0 ? '' : state.appId,
        lostAt: '',
        focus: { on: said.reason === 'wrong_code' || !asksToken ? 'code' : 'token' },
      };
    }
    case 'ended': {
      const { message: notice } = said;
      const focus = { on: 'again' };
      return { phase: 'ended', tone: 'bad', status: 'Pairing ended', notice, lostAt: '', focus };
    }
  }
}

export const pairAgain = { ...notPaired, phase: 'form', problem: '' } satisfies Change;
export const cleared: Change = { rows: [], held: [], counts: {}, missed: 0, notice: '' };
const live = { tone: 'good', status: 'Paired · live' };

/** A person who is signed in to the console needs no token. */
export const signedIn: Change = { asksToken: false, focus: { on: 'code' } };

export function pauseOrResume({ isPaused, held, rows }: State): Change {
  return isPaused ? { isPaused: false, rows: newest(held, rows), held: [] } : { isPaused: true };
}

function withBatch(state: State, { messages, at, left_out }: Extract<Said, { type: 'batch' }>): Change {
  const counts = { ...state.counts };
  const batch: Shown[] = [];
  for (const message of messages) {
    const status = String(message.answer?.status);
    counts[status] = (counts[status] ?? 0) + 1;
    lastKey += 1;
    batch.unshift({ key: lastKey, message, at });
  }
  const { isPaused, held, rows } = state;
  const list = isPaused ? { held: newest(batch, held) } : { rows: newest(batch, rows) };
  return { ...live, ...list, counts, missed: state.missed + left_out };
}

function newest(added: readonly Shown[], known: readonly Shown[]): readonly Shown[] {
  return [...added, ...known].slice(0, messagesMax);
}

function whyLost({ closeCode, wasPaired }: Extract<Said, { type: 'lost' }>): string {
  if (closeCode === 1001) return 'The service is stopping.';
  if (closeCode === 1013) return 'The service cannot reach Redis now.';
  return wasPaired ? 'The connection was lost.' : 'The service does not answer.';
}

function clockTime(): string {
  return new Date().toTimeString().slice(0, 8);
}
