// What we use of yazl. The build makes one file of it (deploy/build.mjs).

export { ZipFile } from 'yazl';
