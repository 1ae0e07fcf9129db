// Owns errors in ClickHouse's terms: code, name and text of an exception, and its HTTP status.

export class ClickHouseException extends Error {
  readonly code: number;

  /** @param text "Code: N. DB::Exception: … (TYPE)", without the version behind it. */
  constructor(code: number, text: string) {
    super(text);
    this.name = 'ClickHouseException';
    this.code = code;
  }

  static of(code: number, type: string, message: string): ClickHouseException {
    return new ClickHouseException(code, `Code: ${code}. DB::Exception: ${message}. (${type})`);
  }
}

/** Turns what the engine threw into an exception; hides the files that this server put in between. */
export function toException(error: unknown): ClickHouseException {
  if (error instanceof ClickHouseException) return error;
  const text = error instanceof Error ? error.message : String(error);
  const code = /^Code:\s*(\d+)\b/.exec(text)?.[1];
  if (code === undefined) {
    return ClickHouseException.of(1002, 'UNKNOWN_EXCEPTION', text.trim() || 'The engine gave no reason');
  }
  const cleaned = text
    .trim()
    .replace(/^(Code: \d+\. DB::Exception: )\1/, '$1')
    .replace(/( \([A-Z][A-Z0-9_]+\)) \(version [^)]*\)\.?( \([A-Z][A-Z0-9_]+\))?$/, '$1')
    .replace(/: \(in file\/uri [^)]*\)/, '')
    .replace(/data for INSERT was parsed from file/, 'data for INSERT was parsed from query');
  return new ClickHouseException(Number(code), cleaned);
}

const badRequest = [
  6, 25, 26, 27, 36, 38, 41, 43, 44, 53, 62, 72, 117, 15, 16, 145, 146, 167, 168, 321, 427, 441, 675, 676,
  715,
];
const notFound = [46, 47, 50, 56, 60, 63, 73, 78, 81, 106, 115, 336, 511];

/** ClickHouse's own mapping. @see src/Server/HTTP/exceptionCodeToHTTPStatus.cpp in ClickHouse */
export function httpStatus(code: number): number {
  if (code === 194) return 401; // REQUIRED_PASSWORD
  if ([192, 193, 516, 512, 497].includes(code)) return 403;
  if (badRequest.includes(code)) return 400;
  if (notFound.includes(code)) return 404;
  if (code === 307) return 413; // here: more bytes than this server takes
  if (code === 48) return 501; // NOT_IMPLEMENTED
  if (code === 209 || code === 76 || code === 439) return 503;
  if (code === 381) return 411;
  if (code === 159) return 408;
  return 500;
}
