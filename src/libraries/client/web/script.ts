// The entry of `sdk.js`.

import type { Window } from './browser.js';
import { install } from './install.js';

declare const window: Window;

install(window);
