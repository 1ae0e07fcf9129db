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
  useRef,
} from 'react';
import { type LoadOptions, type Sluice, sluice } from './index.js';

export type SluiceProviderProps = LoadOptions & {
  readonly appId: string;
  readonly children?: ReactNode;
};

const context = createContext<Sluice>(sluice);

/**
 * Begins to record once it is rendered. Changed options take effect: functions at once, others when the change is rendered. Calls that its
 * children make before that wait.
 */
export function SluiceProvider({ appId, children, ...options }: SluiceProviderProps): ReactElement {
  const latest = useRef(options);
  // Set now, not in an effect: effects of the children run before those of this component.
  latest.current = options;
  // Replacing one function by another changes nothing here.
  const description = JSON.stringify(options, (_, value) =>
    typeof value === 'function' ? 'function' : value,
  );
  useEffect(() => sluice.load(appId, withLatestFunctions(options, latest)), [appId, description]);
  return createElement(context.Provider, { value: sluice }, children);
}

/** The options, with functions that call those of the latest render. */
function withLatestFunctions(options: LoadOptions, latest: { readonly current: LoadOptions }): LoadOptions {
  const { beforeSend, pageViews } = options;
  // If there is no text, as when the function was removed, no page view is recorded.
  const redact = (url: string): string => {
    const { pageViews } = latest.current;
    return (typeof pageViews === 'object' ? pageViews.redact?.(url) : undefined) as string;
  };
  return {
    ...options,
    ...(beforeSend && { beforeSend: (message) => latest.current.beforeSend?.(message) ?? null }),
    ...(typeof pageViews === 'object' && pageViews.redact && { pageViews: { ...pageViews, redact } }),
  };
}

/** The library. Its operations may be called at any time, in effects and handlers. */
export function useSluice(): Sluice {
  return useContext(context);
}
