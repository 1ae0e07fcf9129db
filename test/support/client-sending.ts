// A started client of the library in its world, and what tests of its sending ask about it.

import type { Message } from '../../src/libraries/client/core/messages.js';
import { createWorld, type TestPage, testSettings, type World } from './client-world.js';

export function started(settings = {}): World & TestPage {
  const world = createWorld();
  const page = world.open();
  page.client.start('1', { ...testSettings, ...settings });
  return { ...world, ...page };
}

/** One more page for the app 1, in the same browser. */
export function openTab(world: World): TestPage {
  const page = world.open();
  page.client.start('1', testSettings);
  return page;
}

export function isNamed(message: Message, event: string): boolean {
  return message.type === 'event' && message.event === event;
}

export function waiting({ texts }: World): string[] {
  return [...texts.keys()].filter((key) => key.startsWith('sluice:1:q:'));
}

/** When the requests came, in milliseconds after the start. */
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
