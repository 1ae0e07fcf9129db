// The frame of the console's API page: Redoc, in a document without an origin. It renders the OpenAPI document that the surrounding page
// sends. It can neither call the service nor see the console.

import './without-origin.js';
import { init } from 'redoc/bundles/redoc.standalone.js';
import { keepAccessible } from './accessible.js';
import { type OpenApi, type Own, withOwnExamples } from './own-examples.js';
import { withPlainSchemas } from './plain-schemas.js';

export type Shown = { readonly document: OpenApi; readonly own: Own };

addEventListener('message', ({ source, data }: MessageEvent<Shown>) => {
  const root = document.getElementById('reference');
  if (source !== parent || root === null) return;
  keepAccessible(document);
  init(
    withPlainSchemas(withOwnExamples(data.document, data.own)),
    { disableTelemetry: true, hideDownloadButtons: true, jsonSamplesExpandLevel: 4 },
    root,
  );
});
