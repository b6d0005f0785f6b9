// npm's `oidc-provider`, for `test_provider.py`: a person is logged in at once, as the account that the address names.
//
// node oidc_provider.mjs MODULES REDIRECT-URI…
//
// `/as/u-bob` logs the next person in as u-bob, `/groups/u-ada/staff,ops` changes who is in which group.
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [modules, ...redirectUris] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
const server = createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://${process.env.ISSUER_HOST ?? '127.0.0.1'}:${server.address().port}`;
const groups = { 'u-ada': ['staff', 'ops'], 'u-bob': ['guests'] };
let account = 'u-ada';

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'gateway',
    client_secret: 'secret: of the gateway, at least 32 bytes',
    redirect_uris: redirectUris,
    application_type: 'native',
  }],
  claims: { openid: ['sub'], profile: ['groups'] },
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  cookies: { keys: ['only for tests'] },
  features: { devInteractions: { enabled: false } },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: groups[id] }) }),
  async loadExistingGrant(ctx) {
    const grant = new ctx.oidc.provider.Grant({
      clientId: ctx.oidc.client.clientId,
      accountId: ctx.oidc.session.accountId,
    });
    grant.addOIDCScope('openid profile');
    await grant.save();
    return grant;
  },
});
const handle = provider.callback();
server.on('request', async (request, response) => {
  if (request.url.startsWith('/as/')) {
    account = request.url.slice('/as/'.length);
    response.end('{}');
  } else if (request.url.startsWith('/groups/')) {
    const [id, named] = request.url.slice('/groups/'.length).split('/');
    groups[id] = named.split(',').filter(Boolean);
    response.end('{}');
  } else if (request.url.startsWith('/interaction/')) {
    const { prompt } = await provider.interactionDetails(request, response);
    const answer = prompt.name === 'login' ? { login: { accountId: account } } : { consent: {} };
    await provider.interactionFinished(request, response, answer, { mergeWithLastSubmission: true });
  } else {
    handle(request, response);
  }
});
console.log(issuer);
