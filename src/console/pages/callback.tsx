// The address that the service calls when a deletion of the account is complete.

import { useState } from 'preact/hooks';
import { type Account, call, part } from '../api.js';
import { Confirm } from '../parts/dialog.js';
import { Field, useField } from '../parts/fields.js';
import { ActionButton, Form } from '../parts/form.js';
import { Help, Loaded, Secret } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { may } from '../session.js';

export function Callback({ account }: { readonly account: Account }) {
  const path = `/accounts/${part(account.account_id)}/callback`;
  const callback = useResource<'showCallback'>(path);
  const url = useField('');
  const [secret, setSecret] = useState('');
  const [said, setSaid] = useState('');
  return (
    <section class="card">
      <h2>Callback</h2>
      <Help page="src/privacy/deletion/README.md#being-called" about="the callback">
        When a deletion is complete, the service calls this address. It signs the call with a secret that only
        you and the service know.
      </Help>
      {secret !== '' && <Secret text={secret} what="callback secret" />}
      <Loaded from={callback}>
        {(data) => (
          <>
            {data.url === null ? (
              <p class="empty">
                Nobody is called.{may('setCallback') && ' Enter the address of your program below.'}
              </p>
            ) : (
              <p class="line">
                <code class="value">{data.url}</code>
                {may('testCallback') && (
                  <ActionButton
                    button="Test"
                    label="Test the callback"
                    small
                    work={async () => {
                      setSaid('');
                      const { delivered, answer, error } = await call<'testCallback'>('POST', `${path}/test`);
                      setSaid(
                        delivered
                          ? `It answered ${answer}: the call was taken.`
                          : `The call was not taken: ${answer === undefined ? error : `it answered ${answer}`}.`,
                      );
                    }}
                  />
                )}
                {may('removeCallback') && (
                  <Confirm
                    button="Remove"
                    of="the callback"
                    title="Remove the callback?"
                    says={<p>Nobody is called any more when a deletion is complete.</p>}
                    confirm="Remove callback"
                    work={async () => {
                      await call('DELETE', path);
                      setSecret('');
                      callback.reload();
                    }}
                  />
                )}
              </p>
            )}
            <p role="status">{said}</p>
          </>
        )}
      </Loaded>
      {may('setCallback') && (
        <Form
          label="Callback"
          submit="Set callback"
          inline
          work={async () => {
            const created = await call<'setCallback'>('PUT', path, { url: url.value.trim() });
            setSecret(created.secret);
            url.set('');
            setSaid('');
            callback.reload();
          }}
        >
          <Field label="URL to call" {...url} hint="Setting it makes a new secret." required />
        </Form>
      )}
    </section>
  );
}
