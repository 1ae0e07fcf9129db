// The entry of `sdk.js`.

import type { Browser } from './browser.js';
import { install } from './install.js';

declare const window: Browser;

install(window);
