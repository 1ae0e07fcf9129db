// What we use of pino. The build makes one file of it (deploy/build.mjs).

export { type Logger, pino } from 'pino';
