// TypeBox, as the service uses it. The build bundles its 680 files into one: loading them took half of an API process's start.

export { default as Type, type Static, type TObject, type TSchema as Schema } from 'typebox';
export { Compile } from 'typebox/compile';
