// Certificates of deletions: a page to print, and a page where anybody can check whether a certificate is genuine.

import { useEffect, useRef, useState } from 'preact/hooks';
import { type Account, type Answer, ApiError, call, part, withQuery } from '../api.js';
import { FileField, unreadable } from '../parts/fields.js';
import { Button } from '../parts/form.js';
import { Brand } from '../parts/icons.js';
import { Facts, Help, Loaded, Problem, Time } from '../parts/parts.js';
import { useLoad } from '../parts/resource.js';
import { kindOf, RowsByTable } from '../parts/rows-by-table.js';
import { hash, onLink } from '../router.js';
import { may } from '../session.js';

type Signed = Answer<'showCertificate'>;
type Certificate = Signed['certificate'];

const submitters: Readonly<Record<NonNullable<Certificate['submitted_by']> | 'api_key', string>> = {
  api_key: 'a program with an API key',
  program_key: 'a program with a key of its own',
  admin_token: 'a program with ADMIN_TOKEN',
  person: 'a person of the console',
};

/** Who submitted a deletion, as far as the reader may know it. */
async function submitterOf({
  deletion_request_id: id,
  account_id,
  submitted_by,
}: Certificate): Promise<string> {
  const kind = submitters[submitted_by ?? 'api_key'];
  if (!may('listAudit')) return kind;
  const query = { account_id, action: 'submit_deletion', deletion_request_id: id };
  const lines = await call<'listAudit'>('GET', withQuery('/audit', query));
  const [line] = lines.filter(({ outcome }) => outcome === 'done');
  return line?.actor === 'person' ? line.actor_name : kind;
}

/** The page to print. The part of its address after the # names the request. */
export function CertificatePage() {
  const id = hash.value;
  const loaded = useLoad(id, async () => {
    const [signed, accounts] = await Promise.all([
      call<'showCertificate'>('GET', `/deletions/${part(id)}/certificate`),
      call<'listAccounts'>('GET', '/accounts'),
    ]);
    const account = accounts.find(({ account_id }) => account_id === signed.certificate.account_id);
    return { signed, account, asker: await submitterOf(signed.certificate) };
  });
  return (
    <main class="paper">
      <p class="brand">
        <Brand />
      </p>
      <Loaded from={loaded}>
        {({ signed, account, asker }) => (
          <>
            <h1>Certificate of deletion</h1>
            <CertificateText certificate={signed.certificate} account={account} asker={asker} />
            <h2>Signature</h2>
            <Facts
              of={[
                ['Key', <code key="key">{signed.signature.key_id}</code>],
                ['Ed25519', <code key="value">{signed.signature.value}</code>],
              ]}
            />
            <p>
              To see whether this is genuine, drop its file, deletion-{id}.json, at {location.origin}/verify.
            </p>
            <p class="buttons screen">
              <Button text="Print" kind="primary" act={() => print()} />
              <a
                class="button"
                href={`/admin/v1/deletions/${part(id)}/certificate`}
                download={`deletion-${id}.json`}
              >
                Download its file
              </a>
              <a class="button" href="/deletions" onClick={onLink}>
                Back
              </a>
            </p>
          </>
        )}
      </Loaded>
    </main>
  );
}

function CertificateText(props: {
  readonly certificate: Certificate;
  readonly account?: Account | undefined;
  readonly asker?: string;
}) {
  const { certificate: said, account, asker } = props;
  const time = (at: string | undefined) => at && <Time at={at} to="zone" />;
  return (
    <>
      <Facts
        of={[
          ['Account', account?.name ?? said.account_id],
          ['Request', <code key="id">{said.deletion_request_id}</code>],
          ['Reference', said.reference],
          ['Submitted', time(said.submitted_at)],
          ['By', asker],
          ['Hidden from every query', time(said.hidden_at)],
          ['Counted, and nothing left', time(said.verified_at)],
          ['Complete', time(said.completed_at)],
          ['Last backup with the data ends', time(said.backups_end_at)],
          ['Users named', said.users.toLocaleString()],
          ['Users with data', said.users_found?.toLocaleString()],
          ['Records deleted', said.rows_deleted.toLocaleString()],
          ['Counted', said.tables_counted?.map((table) => kindOf[table] ?? table).join(', ')],
        ]}
      />
      {said.users_found === 0 && (
        <p>
          <strong>None of the named users had any data.</strong>
        </p>
      )}
      <RowsByTable found={said.found} account={account ?? { environments: [] }} />
      <p>{said.statement?.replace('table in tables_counted', 'kind of record named above')}</p>
    </>
  );
}

type Checked = Answer<'showVerified'>;

/** Open to everybody, without signing in. */
export function VerifyPage() {
  const [checked, setChecked] = useState<(Checked & { readonly name: string }) | undefined>(undefined);
  const [fault, setFault] = useState('');
  const [isOver, setIsOver] = useState(false);
  const latest = useRef<File | undefined>(undefined);
  const check = async (file: File | undefined) => {
    if (file === undefined) return;
    latest.current = file;
    setChecked(undefined);
    setFault('');
    try {
      const found = await checkFile(file);
      // An answer about another file would look like one about this file.
      if (file === latest.current) setChecked({ ...found, name: file.name });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (file === latest.current) setFault(error.message);
    }
  };
  // A file may be dropped anywhere on the page: beside the field, the browser would replace the page with it.
  useEffect(() => {
    const over = (event: DragEvent) => {
      event.preventDefault();
      setIsOver(event.type === 'dragover');
      if (event.type === 'drop') void check(event.dataTransfer?.files[0]);
    };
    const kinds = ['dragover', 'dragleave', 'drop'] as const;
    for (const kind of kinds) addEventListener(kind, over);
    return () => {
      for (const kind of kinds) removeEventListener(kind, over);
    };
  }, []);
  return (
    <main class="paper">
      <p class="brand">
        <Brand />
      </p>
      <h1>Is this certificate genuine?</h1>
      <p>
        Whoever had users deleted here gets a certificate: a file, signed by this service, that says what was
        deleted when. Drop it here to see whether that is so and nothing was changed. Nothing of it is kept.
      </p>
      <div class={isOver ? 'card drop over' : 'card drop'}>
        <FileField
          label="Drop a certificate here, or choose its file"
          accept=".json,application/json"
          chosen={(file) => void check(file)}
        />
      </div>
      <Problem text={fault} />
      <Help page="src/privacy/deletion/README.md#certificate" about="certificates">
        It can be checked without this service, too.
      </Help>
      {checked !== undefined && (
        <section class="card" aria-label="The result">
          {checked.genuine ? (
            <>
              <p role="status">
                <span class="chip good">genuine</span> <bdi>{checked.name}</bdi> was signed by this service,
                and nothing was changed. It says:
              </p>
              <CertificateText certificate={checked.certificate as unknown as Certificate} />
            </>
          ) : (
            <p role="alert">
              <span class="chip bad">not genuine</span> <bdi>{checked.name}</bdi> proves nothing:{' '}
              {checked.reason}.
            </p>
          )}
        </section>
      )}
    </main>
  );
}

async function checkFile(file: File): Promise<Checked> {
  const body = await file.text().catch(() => {
    throw new ApiError(0, unreadable);
  });
  const response = await fetch('/admin/v1/certificates/check', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  }).catch(() => undefined);
  if (response?.ok) return (await response.json()) as Checked;
  if (response?.status === 413 || response?.status === 400)
    return { genuine: false, reason: 'this is not a certificate' };
  throw new ApiError(response?.status ?? 0, 'The service does not answer now. Try again in a while.');
}
