// What can be done with a person, in every environment of the account at once.

import { Fragment } from 'preact';
import { useState } from 'preact/hooks';
import { type Account, call, type Deletion, part } from '../api.js';
import { useCase } from '../parts/case.js';
import { Confirm } from '../parts/dialog.js';
import { Field, useField } from '../parts/fields.js';
import { may } from '../session.js';
import { inRequest, type NameOfPerson, nameText } from './person-name.js';

export function PersonActions(props: {
  readonly account: Account;
  /** The names of the person; each action applies to all of them. */
  readonly names: readonly NameOfPerson[];
  readonly done: () => Promise<void>;
  readonly submitted: (deletion: Deletion) => void;
}) {
  const { account, names, done, submitted } = props;
  const [said, setSaid] = useState('');
  const of = `/accounts/${part(account.account_id)}`;
  const users = names.map(inRequest);
  const { inCase, field } = useCase(account);
  const reference = useField('');
  const isSuppressed = names.some(({ suppression }) => suppression.suppressed);
  const everywhere = `in every environment of ${account.name}`;
  const person = (
    <>
      {names.map((name, at) => (
        <Fragment key={nameText(name)}>
          {at > 0 && ' and '}
          <strong>{nameText(name)}</strong>
        </Fragment>
      ))}
    </>
  );
  return (
    <>
      {field}
      <div class="buttons">
        {may('submitExport') && (
          <Confirm
            button="Export"
            title="Export this user?"
            calm
            says={
              <p>
                Everything that is held about {person}, {everywhere}, is kept ready for download for a day,
                under Deletions. The audit log notes that you requested it.
              </p>
            }
            confirm="Export user"
            work={async () => {
              await call('POST', `${of}/user_exports`, { users, ...inCase });
              setSaid('The export is requested. Once it is ready, you find it under Deletions.');
            }}
          />
        )}
        {may('suppressUsers') && (
          <Confirm
            button={isSuppressed ? 'Lift the suppression' : 'Suppress'}
            title={isSuppressed ? 'Lift the suppression of this user?' : 'Suppress this user?'}
            says={
              isSuppressed ? (
                <p>
                  From now on, what is sent about {person} is stored again, {everywhere}.
                </p>
              ) : (
                <p>
                  From now on, nothing that is sent about {person} is stored, {everywhere}. What is already
                  stored stays. The senders are not told.
                </p>
              )
            }
            asks={
              <Field
                label="Why"
                {...reference}
                hint="A reference of your own, such as a ticket. It is kept, so it must not name a user."
                more={{ maxLength: 255 }}
              />
            }
            confirm={isSuppressed ? 'Store again' : 'Suppress user'}
            work={async () => {
              await call('POST', `${of}/user_suppression`, {
                users,
                suppress: !isSuppressed,
                reference: reference.value.trim() || undefined,
                ...inCase,
              });
              setSaid(isSuppressed ? 'The suppression is lifted.' : 'The user is suppressed.');
              await done();
            }}
          />
        )}
        {may('submitDeletion') && (
          <Confirm
            button="Delete user"
            grave
            title="Delete this user?"
            says={
              <p>
                All events, properties and identifications of {person}, and of the user ids that are merged
                with it, are deleted {everywhere}. This cannot be undone. What is sent later is stored
                {isSuppressed
                  ? ' only once the suppression is lifted.'
                  : '. To prevent that, suppress the user, too.'}
              </p>
            }
            confirm="Delete this user"
            work={async () => {
              const answer = await call<'submitDeletion'>('POST', `${of}/user_deletion`, {
                users,
                ...inCase,
              });
              if (answer.status === 'awaits_confirmation')
                return setSaid(
                  'The deletion is proposed. It begins once another privacy officer has also found this user by the same name and submitted the deletion, within 7 days.',
                );
              setSaid('The deletion is submitted. Below you see when it is complete.');
              // The request is submitted even if it cannot be shown now: the list of deletions has it.
              const path = `/deletions/${part(answer.deletion_request_id)}`;
              await call<'showDeletion'>('GET', path).then(submitted, () => undefined);
            }}
          />
        )}
      </div>
      <p role="status">{said}</p>
    </>
  );
}
