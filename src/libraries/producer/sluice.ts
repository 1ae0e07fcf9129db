// The library for servers: calls are accepted at once, gathered and sent. Reads as a table of contents.

import { type DeleteOptions, type Deletion, deleteUsers, type UserToDelete } from './deletion.js';
import { createLanes } from './lanes.js';
import { producerLimits as limits } from './limits.js';
import { readOptions, type SluiceOptions } from './options.js';
import { findReceipts, type Receipt, type ReceiptsOptions } from './receipts.js';
import {
  createRecorder,
  type EventProperties,
  type Identification,
  type PropertiesOfUser,
  type QueuedRecord,
  type TrackedEvent,
  type Unsendable,
  type UserProperties,
  type Validation,
} from './records.js';
import { createReporter, type ReportName, type Reports } from './reports.js';
import { closeOnSignals, type SignalOptions } from './signals.js';
import { createSpool, type Spool } from './spool.js';
import { createTransport } from './transport.js';

/** `V`: the option `validation`, which decides which values properties may have. */
export type Sluice<V extends Validation = 'strict'> = {
  /**
   * Records an event. The promise settles when the next call may be made: at once while there is room in the queue; with a spool, when the
   * record is in its file. Callers that send many events should await it. It never rejects.
   */
  track<T extends EventProperties<T, V>>(event: TrackedEvent<T>): Promise<void>;
  /** Gives an anonymous user of the client library an identity. Settles as `track` does. */
  identify(identification: Identification): Promise<void>;
  /** Sets properties of a user, for past and future events. Settles as `track` does. */
  addUserProperties<T extends PropertiesOfUser<T, V>>(user: UserProperties<T>): Promise<void>;
  /** Sends what is waiting now. Settles when the service has answered for all of it. */
  flush(): Promise<void>;
  /**
   * Accepts no more calls, sends what is waiting, and gives up after `deadlineMs` (10 s). Settles with whether the service has answered for
   * every record. The remaining records are dropped, or stay in the spool. Further calls return the same promise.
   */
  close(deadlineMs?: number): Promise<boolean>;
  /** On SIGTERM and SIGINT, closes and then lets the signal end the process. Returns a function that undoes this. */
  closeOnSignals(options?: SignalOptions): () => void;
  /** Deletes any number of users and reports the progress. Nothing happens before the result is first used. */
  deleteUsers(users: Iterable<UserToDelete> | AsyncIterable<UserToDelete>, options?: DeleteOptions): Deletion;
  /**
   * Yields what has happened to records, in the order of their idempotency keys. Needs the option `writeKey`. Throws SluiceError if the
   * service refuses.
   */
  receipts(
    keys: Iterable<string> | AsyncIterable<string>,
    options?: ReceiptsOptions,
  ): AsyncGenerator<Receipt, void, undefined>;
  on<Name extends ReportName>(name: Name, listener: (report: Reports[Name]) => void): void;
  off<Name extends ReportName>(name: Name, listener: (report: Reports[Name]) => void): void;
  /** How many records in memory the service has not answered for. */
  readonly waitingRecords: number;
};

const taken = Promise.resolve();

/** Makes a client. One client serves a whole process. Throws TypeError if an option is wrong, and an error if the spool is in use. */
export function createSluice<V extends Validation = 'strict'>(options: SluiceOptions<V>): Sluice<V> {
  const settings = readOptions(options);
  const reporter = createReporter();
  if (options.onRefused !== undefined) reporter.on('refused', options.onRefused);
  if (options.onIgnored !== undefined) reporter.on('ignored', options.onIgnored);
  if (options.onDropped !== undefined) reporter.on('dropped', options.onDropped);
  if (options.onProblem !== undefined) reporter.on('problem', options.onProblem);
  const transport = createTransport({
    baseUrl: settings.baseUrl,
    requestMs: settings.requestMs,
    connectionsMax: settings.parallelRequests * limits.identificationsMax,
  });
  const recorder = createRecorder(Date.now, (operation, fields) =>
    reporter.tell('ignored', { operation, fields }),
  );
  const lanes = createLanes({ settings, transport, reporter, onSettled });
  const spool =
    settings.spoolFolder === undefined
      ? undefined
      : createSpool({
          folder: settings.spoolFolder,
          sync: settings.spoolSync,
          reporter,
          onSpace: openRoom,
        });
  /** How many records are in memory and not settled. */
  let records = 0;
  let bytes = 0;
  let room: { readonly promise: Promise<void>; readonly open: () => void } | undefined;
  let loading: Promise<void> | undefined;
  /** The last report about unreadable files, so that the same one is not repeated. */
  let unreadable = '';
  let closed: Promise<boolean> | undefined;
  let isStopped = false;
  let droppedUntold: 'queue_full' | 'closed' | undefined;
  let droppedCount = 0;

  function hold(record: QueuedRecord): void {
    records++;
    bytes += record.bytes;
    lanes.add(record);
  }

  function onSettled(record: QueuedRecord): void {
    records--;
    bytes -= record.bytes;
    spool?.forget(record);
    openRoom();
    loadMore();
  }

  function openRoom(): void {
    if (room === undefined || (isFull(1) && !isStopped)) return;
    room.open();
    room = undefined;
  }

  /** Whether memory holds as much as it should, multiplied by a factor. */
  function isMemoryFull(factor: number): boolean {
    return records >= factor * settings.queueRecords || bytes >= factor * limits.queueBytesMax;
  }

  /** Whether no more records should be accepted; with a factor above 1, whether none may be, even from callers that do not wait. */
  function isFull(factor: number): boolean {
    if (spool === undefined) return isMemoryFull(factor);
    const beyondBytes = (factor - 1) * limits.queueBytesMax;
    return (
      spool.bytes + spool.unwrittenBytes >= settings.spoolBytes + beyondBytes ||
      spool.unwrittenBytes >= factor * limits.queueBytesMax
    );
  }

  function take(record: QueuedRecord | Unsendable): Promise<void> {
    if (closed !== undefined) return drop('closed');
    if ('reason' in record) {
      const { operation, record: readable, reason } = record;
      reporter.tell('refused', { operation, record: readable, ...reason });
      return taken;
    }
    if (isFull(settings.whenFull === 'drop' ? 1 : limits.queueOvershoot)) return drop('queue_full');
    if (spool === undefined) {
      hold(record);
      return isFull(1) ? roomToCome() : taken;
    }
    const fits = !spool.isBehind && !isMemoryFull(1);
    if (fits) hold(record);
    const kept = spool.keep(record, fits);
    loadMore();
    return isFull(1) && settings.whenFull === 'wait' ? roomToCome().then(() => kept) : kept;
  }

  function roomToCome(): Promise<void> {
    if (settings.whenFull === 'drop') return taken;
    if (room === undefined) {
      let open: () => void = () => undefined;
      const promise = new Promise<void>((settle) => {
        open = settle;
      });
      room = { promise, open };
    }
    return room.promise;
  }

  /** Drops a record. All drops in one turn of the event loop are reported together. */
  function drop(reason: 'queue_full' | 'closed'): Promise<void> {
    droppedCount++;
    if (droppedUntold === undefined) {
      droppedUntold = reason;
      setImmediate(() => {
        const count = droppedCount;
        droppedUntold = undefined;
        droppedCount = 0;
        reporter.tell('dropped', { count, reason });
      });
    }
    return taken;
  }

  /** Loads from the spool while memory is at most half full. */
  function loadMore(): void {
    if (loading !== undefined || spool === undefined || !spool.isBehind) return;
    if (isStopped || isMemoryFull(0.5)) return;
    loading = load(spool).finally(() => {
      loading = undefined;
      loadMore();
    });
  }

  async function load(from: Spool): Promise<void> {
    try {
      await from.load(hold);
      unreadable = '';
    } catch (error) {
      const { code = 'spool', message } = error as NodeJS.ErrnoException;
      if (message !== unreadable)
        reporter.tell('problem', { code, message: `the spool cannot be read: ${message}` });
      unreadable = message;
      await new Promise((settle) => setTimeout(settle, limits.spoolRetryMs));
    }
  }

  async function flush(): Promise<void> {
    while (spool?.isBehind && !isStopped) {
      loadMore();
      // Memory is full: the service has to answer for some records first.
      await (loading ?? lanes.flush());
    }
    await lanes.flush();
  }

  async function close(deadlineMs: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const deadline = new Promise<void>((settle) => {
      timer = setTimeout(settle, deadlineMs);
    });
    await Promise.race([flush(), deadline]);
    clearTimeout(timer);
    isStopped = true;
    lanes.stop();
    transport.close();
    openRoom();
    await loading;
    const { isEmpty, lost } = (await spool?.close()) ?? { isEmpty: true, lost: records };
    if (lost > 0) reporter.tell('dropped', { count: lost, reason: 'deadline' });
    await reporter.finish();
    return isEmpty && lost === 0;
  }

  // Records that an earlier process left are sent without waiting for a call.
  loadMore();
  return {
    track: (event) => take(recorder.track(event)),
    identify: (identification) => take(recorder.identify(identification)),
    addUserProperties: (user) => take(recorder.addUserProperties(user)),
    flush,
    close(deadlineMs = limits.closeMs) {
      closed ??= close(deadlineMs);
      return closed;
    },
    closeOnSignals(signalOptions) {
      return closeOnSignals((deadlineMs) => this.close(deadlineMs), signalOptions);
    },
    deleteUsers: (users, deleteOptions) => deleteUsers(settings, transport, users, deleteOptions),
    receipts: (keys, receiptsOptions) => findReceipts(settings, transport, keys, receiptsOptions),
    on: reporter.on,
    off: reporter.off,
    get waitingRecords() {
      return records;
    },
  };
}
