// Programs that send an environment its first event, for a beginner to copy.

import { snippet } from './client/web/snippet.js';

export type Example = { readonly name: string; readonly program: string };

/** `needsWriteKey`: the program contains a placeholder that the reader replaces with a write key. */
export function examplesFor(appId: string, baseUrl: string, needsWriteKey: boolean): readonly Example[] {
  const body = JSON.stringify({ app_id: appId, identity: 'ada@example.com', event: 'First Event' });
  const header = needsWriteKey ? " \\\n  -H 'authorization: Bearer WRITE_KEY'" : '';
  const option = needsWriteKey ? ", writeKey: 'WRITE_KEY'" : '';
  const inPython = needsWriteKey ? ', "Authorization": "Bearer WRITE_KEY"' : '';
  return [
    {
      name: 'curl',
      program: `curl ${baseUrl}/api/track -H 'content-type: application/json'${header} \\\n  -d '${body}'`,
    },
    {
      name: 'Node.js',
      program: `import { createSluice } from 'sluice-server';

const sluice = createSluice({ appId: '${appId}', baseUrl: '${baseUrl}'${option} });
sluice.track({ event: 'First Event', identity: 'ada@example.com' });
await sluice.close();`,
    },
    {
      name: 'Python',
      program: `import json, urllib.request

body = json.dumps({"app_id": "${appId}", "identity": "ada@example.com", "event": "First Event"}).encode()
headers = {"Content-Type": "application/json"${inPython}}
urllib.request.urlopen(urllib.request.Request("${baseUrl}/api/track", body, headers))`,
    },
    {
      name: "Segment's library",
      program: `import { Analytics } from '@segment/analytics-node';

const analytics = new Analytics({ writeKey: '${needsWriteKey ? 'WRITE_KEY' : appId}', host: '${baseUrl}' });
analytics.track({ userId: 'ada@example.com', event: 'First Event' });
await analytics.closeAndFlush();`,
    },
    {
      name: 'Web page',
      program: `<script>\n${snippet({ appId, baseUrl })}\nsluice.track('First Event');\n</script>`,
    },
    {
      name: 'React Native',
      program: `import { sluice } from 'sluice-client/react-native';

sluice.configure({ baseUrl: '${baseUrl}' }); // and the phone's storage, as the library's page says
sluice.setAppId('${appId}');
sluice.track('First Event');`,
    },
  ];
}
