// npm's `oidc-provider` with tokens that live for seconds and refresh tokens that can be used once, for `test_oidc_provider.py`.
// Whoever comes is logged in at once, with all that they ask for. `/counts` tells how often tokens were renewed.
//
// node oidc_provider.mjs MODULES SECONDS PORT-OF-THE-MCP-SERVER
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [modules, seconds, mcpPort] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
const resource = `http://127.0.0.1:${mcpPort}/mcp`;
const counts = { renewed: 0, refused: 0, reused: 0, tokens: 0 };
const used = new Map();

const server = createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  scopes: ['openid', 'offline_access', 'mcp'],
  pkce: { required: () => true },
  rotateRefreshToken: () => true,
  issueRefreshToken: async () => true,
  ttl: { AccessToken: Number(seconds), RefreshToken: 86400, Grant: 86400, Session: 86400, Interaction: 600 },
  cookies: { keys: ['only for tests'] },
  clientDefaults: { token_endpoint_auth_method: 'none' },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    deviceFlow: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: 'mcp', accessTokenFormat: 'jwt', accessTokenTTL: Number(seconds) }),
    },
  },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  async loadExistingGrant(ctx) {
    const grant = new ctx.oidc.provider.Grant({
      clientId: ctx.oidc.client.clientId,
      accountId: ctx.oidc.session.accountId,
    });
    grant.addOIDCScope('openid offline_access mcp');
    grant.addResourceScope(resource, 'mcp');
    await grant.save();
    return grant;
  },
});
provider.on('grant.success', (ctx) => {
  if (ctx.oidc.params.grant_type !== 'refresh_token') return;
  counts.renewed += 1;
  const token = ctx.oidc.params.refresh_token;
  used.set(token, (used.get(token) ?? 0) + 1);
  counts.tokens = used.size;
});
provider.on('grant.error', () => { counts.refused += 1; });
provider.on('server_error', (_, error) => console.error(error));

const handle = provider.callback();
server.on('request', async (request, response) => {
  if (request.url === '/counts') {
    response.end(JSON.stringify(counts));
  } else if (request.url.startsWith('/interaction/')) {
    const { prompt } = await provider.interactionDetails(request, response);
    const answer = prompt.name === 'login' ? { login: { accountId: `person-${Math.random()}` } } : { consent: {} };
    await provider.interactionFinished(request, response, answer, { mergeWithLastSubmission: true });
  } else {
    handle(request, response);
  }
});
console.log(issuer);
