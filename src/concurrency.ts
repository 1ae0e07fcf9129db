// Limits how much work of one kind a process does at a time: each piece of work needs a place. An account holds no more than its
// share, however much it asks for, and the last places are reserved for accounts that hold none. When all are taken, callers wait in
// a queue of limited length for a limited time: a free place goes to the account that holds the fewest and, among equals, to the one
// that got its last place the longest ago. Used for dry runs, downloads, queries to ClickHouse and callbacks.

/** The account for which work is done, and perhaps one of its people. */
export type Holder = { readonly account: string; readonly person?: string };

export type PlacesLimits = {
  /** The most places taken at once: in all, by one account, and by one person. */
  readonly atOnceMax: number;
  readonly ofAccountMax: number;
  readonly ofPersonMax?: number;
  /** The number of places that are kept for accounts without a place. */
  readonly reserved: number;
  /** How long a caller waits for a place; how many callers of one account, and of one person, may wait. */
  readonly waitMsMax: number;
  readonly waitingOfAccountMax: number;
  readonly waitingOfPersonMax?: number;
};

/** Work that may have to give way to an account that holds no place. */
export type MakesWay = {
  /** Whether it holds its place for longer than the work needs. */
  readonly isSlow: () => boolean;
  /** Ends the work, which then soon gives its place back. Called once. */
  readonly leave: () => void;
};

/** Gives a place back; may be called again. */
export type EndPlace = () => void;

export type Places = ReturnType<typeof createPlaces>;

type Held = { readonly account: string; readonly makesWay: MakesWay | undefined; isLeaving: boolean };
type Waiting = {
  readonly holder: Holder;
  readonly makesWay: MakesWay | undefined;
  readonly settle: (end: EndPlace | undefined) => void;
};

/** How often to check whether slow work has to give way. */
const checkEveryMs = 500;

export function createPlaces(limits: PlacesLimits) {
  const { atOnceMax, ofAccountMax, ofPersonMax = ofAccountMax } = limits;
  const { waitingOfAccountMax, waitingOfPersonMax = waitingOfAccountMax } = limits;
  const held = new Set<Held>();
  const ofAccount = createCounts();
  const ofPerson = createCounts();
  const waiting = new Set<Waiting>();
  /** The `turn` at which each account and each person last got a place. */
  const lastTurn = new Map<string, number>();
  let turn = 0;
  let checking: NodeJS.Timeout | undefined;

  function mayHold(holder: Holder): boolean {
    const taken = ofAccount.of(holder.account);
    const free = atOnceMax - held.size - (taken === 0 ? 0 : limits.reserved);
    return free > 0 && taken < ofAccountMax && ofPerson.of(personOf(holder)) < ofPersonMax;
  }

  function hold(holder: Holder, makesWay: MakesWay | undefined): EndPlace {
    const { account } = holder;
    const person = personOf(holder);
    const place: Held = { account, makesWay, isLeaving: false };
    held.add(place);
    ofAccount.add(account, 1);
    ofPerson.add(person, 1);
    turn += 1;
    lastTurn.set(account, turn).set(person, turn);
    return () => {
      if (!held.delete(place)) return;
      ofAccount.add(account, -1);
      ofPerson.add(person, -1);
      letIn();
    };
  }

  function letIn(): void {
    for (let next = nextWaiting(); next !== undefined; next = nextWaiting()) {
      waiting.delete(next);
      next.settle(hold(next.holder, next.makesWay));
    }
    if (waiting.size > 0) return;
    clearInterval(checking);
    checking = undefined;
    for (const [name] of lastTurn) if (ofAccount.of(name) + ofPerson.of(name) === 0) lastTurn.delete(name);
  }

  function nextWaiting(): Waiting | undefined {
    let first: Waiting | undefined;
    for (const entry of waiting)
      if (mayHold(entry.holder) && (first === undefined || isBefore(entry, first))) first = entry;
    return first;
  }

  /** Whether `a` goes first although `b` asked earlier. */
  function isBefore({ holder: a }: Waiting, { holder: b }: Waiting): boolean {
    const [personA, personB] = [personOf(a), personOf(b)];
    const differences = [
      ofAccount.of(a.account) - ofAccount.of(b.account),
      (lastTurn.get(a.account) ?? 0) - (lastTurn.get(b.account) ?? 0),
      ofPerson.of(personA) - ofPerson.of(personB),
      (lastTurn.get(personA) ?? 0) - (lastTurn.get(personB) ?? 0),
    ];
    return (differences.find((difference) => difference !== 0) ?? 0) < 0;
  }

  /** While an account without a place waits for one, ends slow work of the account that holds the most. */
  function endSlowWork(): void {
    const waits = [...waiting].some(({ holder }) => ofAccount.of(holder.account) === 0);
    if (!waits || held.size < atOnceMax || [...held].some(({ isLeaving }) => isLeaving)) return;
    const slow = [...held].filter(({ makesWay }) => makesWay?.isSlow() === true);
    const [most] = slow.sort((a, b) => ofAccount.of(b.account) - ofAccount.of(a.account));
    if (most === undefined) return;
    most.isLeaving = true;
    most.makesWay?.leave();
  }

  /** Takes a place if there is one now. */
  function tryTake(holder: Holder, makesWay?: MakesWay): EndPlace | undefined {
    return mayHold(holder) ? hold(holder, makesWay) : undefined;
  }

  function mayWait({ account, person }: Holder): boolean {
    const ofThisAccount = [...waiting].filter(({ holder }) => holder.account === account);
    const ofThisPerson = ofThisAccount.filter(({ holder }) => holder.person === person);
    return ofThisAccount.length < waitingOfAccountMax && ofThisPerson.length < waitingOfPersonMax;
  }

  /** Settles once there is a place; with undefined if the queue is too long, or no place became free in time. */
  function take(holder: Holder, makesWay?: MakesWay): Promise<EndPlace | undefined> {
    const end = tryTake(holder, makesWay);
    if (end !== undefined) return Promise.resolve(end);
    if (!mayWait(holder)) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const entry: Waiting = {
        holder,
        makesWay,
        settle: (place) => {
          clearTimeout(timer);
          resolve(place);
        },
      };
      const timer = setTimeout(() => {
        waiting.delete(entry);
        resolve(undefined);
        letIn();
      }, limits.waitMsMax);
      waiting.add(entry);
      checking ??= setInterval(endSlowWork, checkEveryMs).unref();
    });
  }

  return {
    tryTake,
    take,
    /** Does work in a place; `'busy'` if there was none. */
    within: async <Result>(holder: Holder, work: () => Promise<Result>): Promise<Result | 'busy'> => {
      const end = await take(holder);
      if (end === undefined) return 'busy';
      try {
        return await work();
      } finally {
        end();
      }
    },
  };
}

function personOf({ account, person }: Holder): string {
  return `${account} ${person ?? ''}`;
}

/** Counts by name; names whose count is 0 take no memory. */
function createCounts() {
  const counts = new Map<string, number>();
  return {
    of: (name: string) => counts.get(name) ?? 0,
    add: (name: string, change: number) => {
      const count = (counts.get(name) ?? 0) + change;
      if (count === 0) counts.delete(name);
      else counts.set(name, count);
    },
  };
}
