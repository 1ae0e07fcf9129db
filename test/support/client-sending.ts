// A started client of the library with its surroundings, for tests of how it sends.

import type { Message } from '../../src/libraries/client/core/messages.js';
import { createWorld, type TestPage, type World } from './client-world.js';

export function started(settings = {}): World & TestPage {
  const world = createWorld();
  return { ...world, ...world.start({}, settings) };
}

export function isNamed(message: Message, event: string): boolean {
  return message.type === 'event' && message.event === event;
}

export function waiting({ texts }: World): string[] {
  return [...texts.keys()].filter((key) => key.startsWith('sluice:1:q:'));
}

/** Collects when requests arrive from now on, in milliseconds from the call. */
export function watchTimes(world: World): number[] {
  const times: number[] = [];
  const begin = world.clock.now();
  const { answerWith } = world.server;
  world.server.answerWith = (request) => {
    times.push(world.clock.now() - begin);
    return answerWith(request);
  };
  return times;
}
