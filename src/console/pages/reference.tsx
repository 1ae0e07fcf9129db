// The API reference: this deployment's OpenAPI documents, rendered by Redoc with the account's app_id in the examples. Redoc writes styles
// and HTML into the page, which the console's policy forbids. So it has its own frame, without an origin.

import { useEffect, useRef, useState } from 'preact/hooks';
import { type Account, ApiError } from '../api.js';
import { Choice } from '../parts/fields.js';
import { Problem } from '../parts/parts.js';
import { useLoad } from '../parts/resource.js';
import type { Shown } from '../reference/frame.js';

const documents = [
  ['/openapi.json', 'Collecting and deleting'],
  ['/admin/v1/openapi.json', 'Administration'],
] as const;

async function load(path: string): Promise<Shown['document']> {
  const document = await fetch(path)
    .then((answer) => (answer.ok ? answer.json() : undefined))
    .catch(() => undefined);
  if (document === undefined) throw new ApiError(0, 'The service does not answer.');
  return document;
}

export function Reference({ account }: { readonly account: Account | undefined }) {
  const [path, setPath] = useState<string>(documents[0][0]);
  const { data: document, fault } = useLoad(path, () => load(path));
  const [ready, setReady] = useState('');
  const frame = useRef<HTMLIFrameElement>(null);
  const appId = account?.environments.find(({ main }) => main)?.app_id;
  const accountId = account?.account_id;
  /** Each combination of document and account has its own frame. */
  const key = `${path} ${appId}`;
  useEffect(() => {
    if (ready !== key || document === undefined) return;
    const shown: Shown = { document, own: { app_id: appId, account_id: accountId } };
    // The frame has no origin that could be named here. The message contains no secret.
    frame.current?.contentWindow?.postMessage(shown, '*');
  }, [ready, document, key]);
  return (
    <>
      <div class="head">
        <h1>API</h1>
        <Choice label="Document" value={path} set={setPath} options={documents} />
      </div>
      <p class="muted above">
        {document?.servers[0] !== undefined && (
          <>
            Base URL: <code>{document.servers[0].url}</code>.{' '}
          </>
        )}
        For tools: <a href={path}>{path}</a>. Drawn by Redoc.
      </p>
      <Problem text={fault} />
      <iframe
        key={key}
        ref={frame}
        class="reference"
        title="API reference"
        src="/reference"
        sandbox="allow-scripts"
        allow="clipboard-write"
        onLoad={() => setReady(key)}
      />
    </>
  );
}
