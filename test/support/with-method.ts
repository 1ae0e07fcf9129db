// A connection with another method in place of its own, to see or disturb what is sent over it.

/** The same object, except for one of its methods. */
export function withMethod<Of extends object>(
  of: Of,
  name: keyof Of,
  method: (...args: never[]) => unknown,
): Of {
  return new Proxy(of, {
    get: (target, property) => {
      if (property === name) return method;
      const value = Reflect.get(target, property) as unknown;
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
