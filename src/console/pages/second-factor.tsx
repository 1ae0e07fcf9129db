// The second factor of the signed-in person: set up with an app on their phone, or removed.

import { useState } from 'preact/hooks';
import { call } from '../api.js';
import { CodeField, Field, useField } from '../parts/fields.js';
import { Form } from '../parts/form.js';
import { Copy } from '../parts/parts.js';
import { QrCode } from '../parts/qr-code.js';
import { person } from '../session.js';

export function SecondFactor({ open = false }: { readonly open?: boolean }) {
  const [offered, setOffered] = useState<{ readonly secret: string; readonly uri: string } | undefined>(
    undefined,
  );
  const password = useField('');
  const code = useField('');
  const { value } = person;
  if (value == null) return null;
  const change = (second_factor: boolean) => {
    person.value = { ...value, second_factor };
    setOffered(undefined);
    password.set('');
    code.set('');
  };
  const passwordField = (
    <Field label="Your password" type="password" {...password} complete="current-password" required />
  );
  if (value.second_factor) {
    return (
      <details>
        <summary>Second factor: on</summary>
        <Form
          label="Remove the second factor"
          submit="Remove second factor"
          danger
          work={async () => {
            await call('DELETE', '/second_factor', { password: password.value });
            change(false);
          }}
        >
          {passwordField}
        </Form>
      </details>
    );
  }
  return (
    <details open={open}>
      <summary>Second factor: off</summary>
      <p>With a second factor, signing in also takes six digits that an app on your phone shows.</p>
      {offered === undefined ? (
        <Form
          label="Set up a second factor"
          submit="Set up second factor"
          work={async () => setOffered(await call<'offerSecondFactor'>('POST', '/second_factor'))}
        />
      ) : (
        <Form
          label="Set up a second factor"
          submit="Turn on"
          work={async () => {
            await call('PUT', '/second_factor', {
              password: password.value,
              secret: offered.secret,
              code: code.value,
            });
            change(true);
          }}
          cancel={() => setOffered(undefined)}
        >
          <p>
            Scan this code with your app, or enter its key there. On this phone{' '}
            <a href={offered.uri}>open it in the app</a>.
          </p>
          <QrCode text={offered.uri} what="The key of the second factor, to scan" />
          <p class="line">
            <code class="value">{offered.secret.replaceAll(/(.{4})(?=.)/g, '$1 ')}</code>
            <Copy text={offered.secret} what="key of the second factor" />
          </p>
          <CodeField {...code} />
          {passwordField}
        </Form>
      )}
    </details>
  );
}
