// TypeBox, as the service uses it. The build makes one file of its 680, which took half of the time of an API process's start.

export { default as Type, type Static, type TObject, type TSchema as Schema } from 'typebox';
export { Compile } from 'typebox/compile';
