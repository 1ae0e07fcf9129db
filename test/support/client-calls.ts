// Calls of the client library's four surfaces, as an app writes them. Nothing here ever runs: it must compile, except the lines below
// `@ts-expect-error`. Every build compiles this file; a test of the packages compiles their types as an app would.

import { sluice as web } from 'sluice/client';
import { type AndroidContext, sluice as android } from 'sluice/client/android';
import { sluice as ios } from 'sluice/client/ios';
import { type DeviceStorage, sluice as reactNative } from 'sluice/client/react-native';

/** Properties as applications declare them, since an interface has no index signature. */
interface Order {
  readonly amount: number;
  readonly note?: string;
  readonly paid: boolean;
  readonly tags: readonly string[];
}
declare const order: Order;

declare const text: string;
declare const storage: DeviceStorage;
declare const context: AndroidContext;
declare const anything: object;
declare const maybe: string | undefined;

// As React Native and AsyncStorage declare them.
declare const AsyncStorage: {
  getItem(key: string, callback?: (error?: Error, result?: string) => void): Promise<string | null>;
  setItem(key: string, value: string, callback?: (error?: Error) => void): Promise<void>;
  removeItem(key: string, callback?: (error?: Error) => void): Promise<void>;
  getAllKeys(callback?: (error?: Error, keys?: readonly string[]) => void): Promise<readonly string[]>;
};
declare const AppState: {
  addEventListener(
    type: 'change' | 'memoryWarning' | 'blur' | 'focus',
    listener: (state: 'active' | 'background' | 'inactive' | 'unknown' | 'extension') => void,
  ): { remove(): void };
};
declare const fetchOfPlatform: (
  input: string | { readonly url: string },
  init?: {
    method?: string;
    headers?: Record<string, string> | [string, string][];
    body?: string | null;
    signal?: { readonly aborted: boolean } | null;
  },
) => Promise<{ status: number; headers: { get(name: string): string | null }; text(): Promise<string> }>;

const baseUrl = 'https://events.example';

type Exactly<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

/** Compiles only for a type argument that is `true`. */
function holds<_T extends true>(): void {}

/** Each surface has exactly these operations. */
export function names(): void {
  type Common =
    | 'track'
    | 'identify'
    | 'resetIdentity'
    | 'addUserProperties'
    | 'addEventProperties'
    | 'removeEventProperty'
    | 'clearEventProperties'
    | 'optOut'
    | 'optIn';
  type Pairing = 'startEVPairing' | 'stopEVPairing' | 'disableVisualizerPairingGesture';
  type Ids = 'userId' | 'identity';
  holds<Exactly<keyof typeof web, Common | Ids | 'load' | 'flush' | 'droppedCount'>>();
  holds<Exactly<keyof typeof reactNative, Common | Ids | 'configure' | 'setAppId'>>();
  // These take what the web's take.
  holds<Exactly<Pick<typeof reactNative, Common>, Pick<typeof web, Common>>>();
  holds<Exactly<Pick<typeof ios, Common>, Pick<typeof web, Common>>>();
  holds<
    Exactly<keyof typeof ios, Common | Pairing | 'configure' | 'setAppId' | 'userId' | 'changeInterval'>
  >();
  holds<
    Exactly<keyof typeof android, Common | Pairing | 'configure' | 'init' | 'disableDefaultPairingGesture'>
  >();
}

export function javaScript(): void {
  web.load('1', { baseUrl });
  web.load('1', { baseUrl, pageViews: false, optedOut: true, allowIdentities: ['user'] });
  web.track('Order Completed');
  web.track('Order Completed', { amount: 12.5, currency: 'EUR', 7: 'a numeric key' });
  web.identify('ada@example.com');
  web.resetIdentity();
  web.addUserProperties({ email: 'ada@example.com', age: 36 });
  web.addEventProperties({ plan: 'free' });
  web.removeEventProperty('plan');
  web.clearEventProperties();
  web.track<Order>('e', order);
  web.addUserProperties(order);
  web.optOut();
  web.optIn();
  holds<Exactly<typeof web.userId, string | undefined>>();
  holds<Exactly<typeof web.identity, string | undefined>>();

  // @ts-expect-error the base URL is missing
  web.load('1');
  // @ts-expect-error the base URL is missing
  web.load('1', {});
  // @ts-expect-error an app_id is a string
  web.load(1, { baseUrl });
  // @ts-expect-error the name is missing
  web.track();
  // @ts-expect-error a name is a string
  web.track(5);
  // @ts-expect-error a name that may be undefined
  web.track(maybe);
  web.track('e', { done: true });
  // @ts-expect-error a value is a number, a string, a boolean or a list of them
  web.track('e', { when: new Date() });
  web.track('e', { list: ['a'] });
  // @ts-expect-error a value is a number, a string, a boolean or a list of them
  web.track('e', { nested: { a: 1 } });
  web.track('e', { none: null });
  web.track('e', { none: undefined });
  // @ts-expect-error properties are an object
  web.track('e', 'properties');
  // @ts-expect-error null stands for no map on Android only
  web.track('e', null);
  // @ts-expect-error only Android has maps
  web.track('e', new Map([['a', 'b']]));
  // @ts-expect-error properties of unknown values
  web.track('e', anything as Record<string, unknown>);
  // @ts-expect-error there is no third argument
  web.track('e', {}, {});
  // @ts-expect-error the identity is missing
  web.identify();
  // @ts-expect-error an identity is a string
  web.identify(5);
  // @ts-expect-error nobody is identified by null
  web.identify(null);
  // @ts-expect-error an identity that may be undefined
  web.identify(maybe);
  // @ts-expect-error it takes nothing
  web.resetIdentity(true);
  // @ts-expect-error the properties are missing
  web.addUserProperties();
  web.addUserProperties({ paid: true });
  // @ts-expect-error the properties are missing
  web.addEventProperties();
  web.addEventProperties({ paid: false, none: null });
  // @ts-expect-error a key is a string
  web.removeEventProperty(5);
  // @ts-expect-error one key, not a list
  web.removeEventProperty(['a']);
  // @ts-expect-error it takes nothing
  web.clearEventProperties('plan');
  // @ts-expect-error the current user is not set by hand
  web.userId = text;
  // @ts-expect-error the identity is set by identify
  web.identity = text;
  // @ts-expect-error a property, not a function
  web.userId();
}

export function onReactNative(): void {
  reactNative.configure({ baseUrl, storage });
  reactNative.configure({ baseUrl, storage: AsyncStorage, appState: AppState, fetch: fetchOfPlatform });
  reactNative.configure({ baseUrl, fetch: async (url, { body }) => fetchOfPlatform(url, { body }) });
  reactNative.configure({ baseUrl, storage, screenViews: false, optedOut: true });
  reactNative.setAppId('1');
  holds<Exactly<typeof reactNative.userId, string | undefined>>();
  holds<Exactly<typeof reactNative.identity, string | undefined>>();

  // @ts-expect-error the base URL is missing
  reactNative.configure({ storage });
  // @ts-expect-error a storage has getAllKeys
  reactNative.configure({ baseUrl, storage: { getItem: () => null, setItem() {}, removeItem() {} } });
  // @ts-expect-error React Native does not pair
  reactNative.configure({ baseUrl, onShake: () => {} });
  // @ts-expect-error an app_id is a string
  reactNative.setAppId(1);
  // @ts-expect-error the app_id is missing
  reactNative.setAppId();
  // @ts-expect-error options go to configure
  reactNative.setAppId('1', { baseUrl });
  // @ts-expect-error the current user is not set by hand
  reactNative.userId = text;
}

export function onIos(): void {
  ios.configure({ baseUrl, storage, onShake: (listener) => listener() });
  ios.setAppId('1');
  ios.changeInterval(0.5);
  ios.startEVPairing();
  ios.stopEVPairing();
  ios.disableVisualizerPairingGesture();
  holds<Exactly<typeof ios.userId, string>>();

  // @ts-expect-error the base URL is missing
  ios.configure({});
  // @ts-expect-error an app_id is a string
  ios.setAppId(1);
  // @ts-expect-error seconds are a number
  ios.changeInterval('5');
  // @ts-expect-error the seconds are missing
  ios.changeInterval();
  // @ts-expect-error it takes nothing
  ios.startEVPairing('ABC-DEF');
  // @ts-expect-error a property, not a function
  ios.userId();
  // @ts-expect-error the current user is not set by hand
  ios.userId = text;
}

export function onAndroid(): void {
  android.configure({ baseUrl });
  android.init(context, '1');
  android.init({ storage, showPairingCode: (code) => code.length }, '1');
  android.track('Order Completed');
  android.track('Order Completed', null);
  android.track('Order Completed', undefined);
  android.track('Order Completed', { amount: 12.5, gift: true, none: null });
  android.track('Order Completed', new Map<string | number, string | boolean>([[1, true]]));
  android.identify('ada@example.com');
  android.resetIdentity();
  android.addUserProperties({ age: 36 });
  android.addUserProperties(new Map([['age', 36]]));
  android.addEventProperties({ dark: true });
  android.addEventProperties(new Map([['plan', 'free']]));
  android.addEventProperties(null);
  android.removeEventProperty('plan');
  android.removeEventProperty(7);
  android.clearEventProperties();
  android.startEVPairing();
  android.stopEVPairing();
  android.disableVisualizerPairingGesture();
  android.disableDefaultPairingGesture();

  // @ts-expect-error the base URL is missing
  android.configure({});
  // @ts-expect-error the phone's adapters belong to the context
  android.configure({ baseUrl, storage });
  // @ts-expect-error the context is missing
  android.init('1');
  // @ts-expect-error a context holds adapters
  android.init('context', '1');
  // @ts-expect-error the app_id is missing
  android.init(context);
  // @ts-expect-error an app_id is a string
  android.init(context, 1);
  // @ts-expect-error a name is a string
  android.track(5);
  // @ts-expect-error a name is not null
  android.track(null);
  // @ts-expect-error an object has no text of its own
  android.track('e', { nested: { a: 1 } });
  // @ts-expect-error an array has no text of its own
  android.track('e', { list: ['a'] });
  // @ts-expect-error properties are a map or an object
  android.track('e', 'properties');
  // @ts-expect-error nobody is identified by null
  android.identify(null);
  // @ts-expect-error a user's properties are numbers or strings
  android.addUserProperties({ paid: true });
  // @ts-expect-error a user's properties are numbers or strings
  android.addUserProperties(new Map([['paid', true]]));
  // @ts-expect-error the properties are missing
  android.addEventProperties();
}
