// What an answer of the server means for its batch. Pure.

import type { TransportAnswer } from './adapters.js';
import { parseJson } from './json.js';
import type { CollectAnswer, Message, MessageAnswer } from './messages.js';

export type Verdict =
  /** Each message was answered; undefined where the answer leaves one out. */
  | {
      readonly kind: 'answered';
      readonly answer: CollectAnswer;
      readonly each: (MessageAnswer | undefined)[];
    }
  /** The service will never accept the batch as it is: a message in it is bad, or the batch is too large. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** The service will never accept anything from this app. */
  | { readonly kind: 'hopeless'; readonly reason: string }
  /** Something on the way to the service does not accept a body of this size. */
  | { readonly kind: 'too_large'; readonly reason: string }
  /** Unknown; the same batch may be sent again later. `isCut`: the service may not have received all of it. */
  | { readonly kind: 'failed'; readonly isCut: boolean; readonly reason: string | undefined };

export function readAnswer({ status, body }: TransportAnswer, messages: readonly Message[]): Verdict {
  const document = parseJson(body);
  if (status === 200 && Array.isArray(document.messages)) {
    const answer = document as CollectAnswer;
    return { kind: 'answered', answer, each: messages.map((message, at) => answerTo(message, at, answer)) };
  }
  const code = document.err?.code;
  const reason = `${status} ${code ?? ''} ${document.err?.message ?? ''}`.trim();
  // A proxy or a captive network may also answer 400. Only an answer with one of the service's codes is about the messages.
  if (typeof code === 'string' && (status === 400 || status === 413)) {
    return { kind: code === 'unknown_app_id' ? 'hopeless' : 'refused', reason };
  }
  if (status === 413) return { kind: 'too_large', reason };
  const isCut = typeof code !== 'string' || status === 408;
  // These answers are not from this service: the address is wrong, or something in between answered. Worth telling the developer.
  const isOdd = status > 0 && status !== 429 && status < 500;
  return { kind: 'failed', isCut, reason: isOdd ? reason : undefined };
}

function answerTo(message: Message, at: number, { messages }: CollectAnswer): MessageAnswer | undefined {
  const answer = messages[at];
  if (answer?.id === message.id) return answer;
  return messages.filter((other) => other?.id === message.id)[0];
}
