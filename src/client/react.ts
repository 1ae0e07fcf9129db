'use client';
// For React, imported as `sluice-client/react`: a provider that begins to record, and a hook. Rendering on a server
// touches nothing, since effects do not run there.

import {
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useContext,
  useEffect,
} from 'react';
import { type LoadOptions, type Sluice, sluice } from './index.js';

export type SluiceProviderProps = LoadOptions & {
  readonly appId: string;
  readonly children?: ReactNode;
};

const context = createContext<Sluice>(sluice);

/**
 * Begins to record once it is shown, and again when the app_id or the address changes. Calls that its children make before
 * wait for that.
 */
export function SluiceProvider({ appId, children, ...options }: SluiceProviderProps): ReactElement {
  const { baseUrl } = options;
  useEffect(() => sluice.load(appId, options), [appId, baseUrl]);
  return createElement(context.Provider, { value: sluice }, children);
}

/** The library. Its operations may be called in effects and handlers, at any time. */
export function useSluice(): Sluice {
  return useContext(context);
}
