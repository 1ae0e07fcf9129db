// The environment of the processes that tests start. From the surrounding one it keeps only what any program needs, so
// that no setting of whoever runs the tests changes what is tested.

const kept = ['PATH', 'HOME', 'TMPDIR', 'TZ', 'LANG', 'NODE_OPTIONS', 'NODE_V8_COVERAGE', 'LD_LIBRARY_PATH'];

export function plainEnvironment(): NodeJS.ProcessEnv {
  const entries = kept
    .filter((name) => process.env[name] !== undefined)
    .map((name) => [name, process.env[name]]);
  return Object.fromEntries(entries);
}
