// The environment of the processes that tests start: of the ambient one only what programs in general need,
// so that no setting of the person who runs the tests changes what they test.

const kept = ['PATH', 'HOME', 'TMPDIR', 'TZ', 'LANG', 'NODE_OPTIONS', 'NODE_V8_COVERAGE', 'LD_LIBRARY_PATH'];

export function plainEnvironment(): NodeJS.ProcessEnv {
  const entries = kept
    .filter((name) => process.env[name] !== undefined)
    .map((name) => [name, process.env[name]]);
  return Object.fromEntries(entries);
}
