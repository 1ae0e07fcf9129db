// Owns the data of one INSERT between HTTP and the engine: a file that the engine reads with FROM INFILE.
// The data is never part of the SQL text, where an empty line would end it and the rest would be taken for
// a statement, and where the engine reads all of it several times: 20,000 rows of 270 bytes take 22 ms of
// processor time this way and 44 ms inline (chdb 3.4.0).

import { type FileHandle, open, unlink } from 'node:fs/promises';
import { ClickHouseException } from './errors.js';
import { insertBufferBytesMax, insertDataBytesMax } from './limits.js';

/** Buffers in one system call; Linux takes 1024. */
const buffersMax = 512;

export class DataFile {
  readonly path: string;
  readonly #handle: FileHandle;
  readonly #bytesMax: number;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #bytes = 0;
  #isOpen = true;

  private constructor(path: string, handle: FileHandle, bytesMax: number) {
    this.path = path;
    this.#handle = handle;
    this.#bytesMax = bytesMax;
  }

  static async create(path: string, bytesMax = insertDataBytesMax): Promise<DataFile> {
    return new DataFile(path, await open(path, 'wx', 0o600), bytesMax);
  }

  /** Takes a piece, which must not be changed afterwards. Rejects when there is too much. */
  async append(chunk: Buffer): Promise<void> {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#bytesMax) {
      const message = `The data of an INSERT exceeds ${this.#bytesMax} bytes`;
      throw ClickHouseException.of(229, 'QUERY_IS_TOO_LARGE', message);
    }
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.length;
    if (this.#pendingBytes >= insertBufferBytesMax) await this.#write();
  }

  /** Writes the rest; after this the engine may read the file. */
  async finish(): Promise<void> {
    await this.#write();
    await this.#close();
  }

  async remove(): Promise<void> {
    this.#pending = [];
    await this.#close();
    await unlink(this.path);
  }

  async #write(): Promise<void> {
    let pending = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    while (pending.length > 0) {
      const batch = pending.slice(0, buffersMax);
      const bytes = batch.reduce((sum, chunk) => sum + chunk.length, 0);
      const { bytesWritten } = await this.#handle.writev(batch);
      const rest = bytesWritten < bytes ? [Buffer.concat(batch).subarray(bytesWritten)] : [];
      pending = [...rest, ...pending.slice(buffersMax)];
    }
  }

  async #close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#handle.close();
  }
}
