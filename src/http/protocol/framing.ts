// What the headers say about the body. The checks are stricter than those of the HTTP parser, which accepts two different Content-Lengths,
// any Transfer-Encoding and signed lengths: each of these could make a proxy and this server see different requests. The headers are read
// in one pass.

import type { HttpRequest } from 'uWebSockets.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';

export type Framing = {
  /** Undefined for a chunked body. */
  readonly length: number | undefined;
  readonly chunked: boolean;
  /** The bytes of all headers together, with their separators. */
  readonly headerBytes: number;
  /** `Content-Encoding` in lower case. Several headers are joined, which yields no known encoding. */
  readonly encoding: string;
  readonly mediaType: MediaType;
  /** Set if the framing itself is wrong, so that the connection must be closed. */
  readonly fault: Rejection | undefined;
  /** Undefined if the header is absent, or given twice, since it is unclear which one counts. */
  readonly authorization: string | undefined;
  readonly importToken: string | undefined;
  /** Whether the client waits for `100 Continue`, and asks for it in a spelling that uWebSockets.js does not answer. */
  readonly awaitsContinue: boolean;
  /** As the browser sent it; undefined if absent. Two headers are joined, which yields no origin. */
  readonly origin: string | undefined;
  /** The forwarding headers of proxies. Several headers of one name are joined in their order. */
  readonly forwardedFor: string | undefined;
  readonly forwarded: string | undefined;
};

/** `json` and `text` are in UTF-8 according to the header; `none`: the header is absent or empty. */
export type MediaType = 'json' | 'text' | 'none' | 'other';

const knownType = /^(application\/json|text\/plain) *(?:; *charset="?utf-?8"?)? *;?$/i;
const decimal = /^\d{1,19}$/;

export function readFraming(req: HttpRequest): Framing {
  let headerBytes = 0;
  let lengths = 0;
  let length: string | undefined;
  let transferEncodings = 0;
  let transferEncoding = '';
  let contentTypes = 0;
  let contentType = '';
  let encoding: string | undefined;
  let authorizations = 0;
  let authorization: string | undefined;
  let importToken: string | undefined;
  let awaitsContinue = false;
  let trailers = 0;
  let origin: string | undefined;
  let forwardedFor: string | undefined;
  let forwarded: string | undefined;
  req.forEach((name, value) => {
    headerBytes += name.length + value.length + 4;
    switch (name) {
      case 'content-length':
        lengths += 1;
        length = value;
        break;
      case 'transfer-encoding':
        transferEncodings += 1;
        transferEncoding = value;
        break;
      case 'content-type':
        contentTypes += 1;
        contentType = value;
        break;
      case 'content-encoding':
        encoding = encoding === undefined ? value.toLowerCase() : `${encoding}, ${value}`;
        break;
      case 'authorization':
        authorizations += 1;
        authorization = value;
        break;
      case 'sluice-import':
        importToken = value;
        break;
      case 'expect':
        awaitsContinue = value !== '100-continue' && value.toLowerCase() === '100-continue';
        break;
      case 'trailer':
        trailers += 1;
        break;
      case 'origin':
        origin = origin === undefined ? value : `${origin}, ${value}`;
        break;
      case 'x-forwarded-for':
        forwardedFor = forwardedFor === undefined ? value : `${forwardedFor},${value}`;
        break;
      case 'forwarded':
        forwarded = forwarded === undefined ? value : `${forwarded},${value}`;
        break;
    }
  });
  const chunked = transferEncodings > 0;
  const isUnambiguous =
    lengths + transferEncodings <= 1 &&
    (length === undefined || decimal.test(length)) &&
    (!chunked || transferEncoding.toLowerCase() === 'chunked');
  return {
    length: chunked ? undefined : Number(length ?? 0),
    chunked,
    headerBytes,
    encoding: encoding ?? 'identity',
    mediaType: contentTypes > 1 ? 'other' : mediaTypeOf(contentType),
    fault: !isUnambiguous ? ambiguous : chunked && trailers > 0 ? withTrailers : undefined,
    awaitsContinue: awaitsContinue && (chunked || (length !== undefined && length !== '0')),
    authorization: authorizations === 1 ? authorization : undefined,
    importToken,
    origin,
    forwardedFor,
    forwarded,
  };
}

function mediaTypeOf(contentType: string): MediaType {
  if (contentType === 'application/json') return 'json';
  if (contentType === '') return 'none';
  const type = knownType.exec(contentType)?.[1];
  if (type === undefined) return 'other';
  return type.toLowerCase() === 'text/plain' ? 'text' : 'json';
}

const ambiguous = rejection(
  'invalid_framing',
  'The request must have exactly one Content-Length in decimal digits, or Transfer-Encoding: chunked.',
);

// The parser would take whatever follows the last chunk for another request, and close the connection.
const withTrailers = rejection('invalid_framing', 'A chunked body must not have trailers.');
